// The randomized Hadamard transform as a stage: see kernel/hadamard.h.
#include "kernel/hadamard.h"

#include "codec/stages.h"

namespace ranvier {
namespace {

class Hadamard final : public Transform {
 public:
  explicit Hadamard(std::size_t block) : block_(block) {}
  void forward(std::span<const float> from, float* to, std::uint32_t seed) const override {
    kernel::hadamard(from.data(), to, from.size(), block_, seed);
  }
  void backward(std::span<float> values, std::uint32_t seed) const override {
    kernel::inverse_hadamard(values.data(), values.size(), block_, seed);
  }
  bool is_random() const override { return true; }

 private:
  std::size_t block_;
};

}  // namespace

std::unique_ptr<Transform> hadamard_transform(std::size_t block) { return std::make_unique<Hadamard>(block); }

void add_hadamard(Parameters& parameters, Draft& draft) {
  draft.transforms.push_back(hadamard_transform(parameters.block(64, "")));
}

}  // namespace ranvier
