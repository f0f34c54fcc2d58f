// A random choice of values that the indices' seed tells, so that no index is sent. Stich et al., "Sparsified SGD with
// Memory", NeurIPS 2018 (arXiv:1809.07599).
//
// One value of each run of 1 / ratio neighbours, at a random place. A value waits 1 / ratio steps for its turn, and the
// learning rate has to be as much smaller: at 1 % and the usual rate, training fails. A control, not a recommendation.
#include <algorithm>
#include <cmath>

#include "codec/share.h"
#include "codec/stages.h"

namespace ranvier {
namespace {

class RandomK final : public Sparsifier {
 public:
  explicit RandomK(double ratio) : ratio_(ratio) {}
  std::size_t due(std::size_t count, std::uint64_t) const override { return share_of(count, ratio_); }
  std::size_t most(std::size_t count) const override { return share_of(count, ratio_); }
  bool indices_follow_from_seed() const override { return true; }
  void choose(std::span<const float> values, std::uint64_t seed, std::uint64_t,
              std::vector<std::uint32_t>& chosen) const override {
    const std::size_t k = share_of(values.size(), ratio_);
    chosen.resize(k);
    for (std::size_t i = 0; i < k; ++i) {
      const std::size_t begin = i * values.size() / k, end = (i + 1) * values.size() / k;
      chosen[i] = static_cast<std::uint32_t>(begin + mix(seed + i) % (end - begin));
    }
  }

 private:
  double ratio_;
};

}  // namespace

void add_random_k(Parameters& parameters, Draft& draft) {
  draft.sparsifier = std::make_unique<RandomK>(parameters.number("", 0.01, 1e-6, 1));
  draft.biased = true;
}

}  // namespace ranvier
