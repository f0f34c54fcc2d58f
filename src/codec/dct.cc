// The discrete cosine transform (type II, orthonormal) of runs of 64 values: it gathers what neighbours have in common
// in few coefficients, which a sparsifier behind it then finds (dct+topk:0.02). Peng, Quesnelle and Kingma, "DeMo:
// Decoupled Momentum Optimization" (arXiv:2411.19870), which takes it of 64 x 64 tiles of matrices.
//
// By a table of cosines: as many multiplications a value as a run has values. What is left at the end is a run of its
// own length.
#include <algorithm>
#include <array>
#include <vector>

#include "codec/cosines.h"
#include "codec/stages.h"
#include "kernel/vectors.h"

namespace ranvier {
namespace {

constexpr std::size_t most_values = 64;
class Dct final : public Transform {
 public:
  explicit Dct(std::size_t size) : size_(size) {
    for (std::size_t length = 1; length <= size; ++length) tables_.push_back(cosines_of(length));
  }
  void forward(std::span<const float> from, float* to, std::uint32_t) const override {
    multiply(from, to, &Cosines::by_place);
  }
  void backward(std::span<float> values, std::uint32_t) const override {
    multiply(values, values.data(), &Cosines::by_cosine);
  }

 private:
  void multiply(std::span<const float> from, float* to, std::vector<float> Cosines::*which) const {
    // Rows are what one input value adds to all outputs.
    std::array<float, most_values> block;
    for (std::size_t begin = 0; begin < from.size(); begin += size_, to += size_) {
      const std::size_t size = std::min(size_, from.size() - begin);
      std::copy_n(from.data() + begin, size, block.data());
      std::fill_n(to, size, 0.0F);
      const std::vector<float>& table = tables_[size - 1].*which;
      for (std::size_t i = 0; i < size; ++i) kernel::add_multiple(table.data() + i * size, block[i], to, size);
    }
  }

  std::size_t size_;
  std::vector<Cosines> tables_;  // by length - 1
};

}  // namespace

void add_dct(Parameters& parameters, Draft& draft) {
  draft.transforms.push_back(std::make_unique<Dct>(parameters.block(most_values, "", most_values)));
}

}  // namespace ranvier
