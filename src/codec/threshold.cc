// Values of at least a given magnitude. Strom, "Scalable Distributed DNN Training Using Commodity GPU Cloud Computing",
// Interspeech 2015. How many these are depends on the values: none at first, all of them at worst.
#include "codec/stages.h"
#include "codec/top_k.h"

namespace ranvier {
namespace {

class Threshold final : public Sparsifier {
 public:
  explicit Threshold(float least) : least_(least) {}
  std::size_t due(std::size_t count, std::uint64_t) const override { return count; }
  std::size_t most(std::size_t count) const override { return count; }
  void choose(std::span<const float> values, std::uint64_t, std::uint64_t,
              std::vector<std::uint32_t>& chosen) const override {
    choose_above(values, least_, values.size(), chosen);
  }

 private:
  float least_;
};

}  // namespace

void add_threshold(Parameters& parameters, Draft& draft) {
  draft.sparsifier = std::make_unique<Threshold>(static_cast<float>(parameters.number("", 0.001, 1e-30, 1e15)));
  draft.biased = true;
}

}  // namespace ranvier
