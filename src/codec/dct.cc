// The discrete cosine transform (type II, orthonormal) of runs of 64 values: it gathers what neighbours have in common
// in few coefficients, which a sparsifier behind it then finds (dct+topk:0.02). Peng, Quesnelle and Kingma, "DeMo:
// Decoupled Momentum Optimization" (arXiv:2411.19870), which takes it of 64 x 64 tiles of matrices.
//
// By a table of cosines: as many multiplications a value as a run has values. What is left at the end is a run of its
// own length.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "codec/stages.h"
#include "kernel/vectors.h"

namespace ranvier {
namespace {

constexpr std::size_t most_values = 64;
using Table = std::array<float, most_values * most_values>;

// Rows are what one input value adds to all outputs.
struct Tables {
  Table forward{};   // row i: all cosines at place i
  Table backward{};  // row k: cosine k at all places
};

Tables tables_of(std::size_t size) {
  Tables tables;
  for (std::size_t k = 0; k < size; ++k)
    for (std::size_t i = 0; i < size; ++i) {
      const auto places = static_cast<double>(size);
      const double angle = std::numbers::pi / places * (static_cast<double>(i) + 0.5) * static_cast<double>(k);
      const auto value = static_cast<float>(std::sqrt((k == 0 ? 1.0 : 2.0) / places) * std::cos(angle));
      tables.forward[i * size + k] = value;
      tables.backward[k * size + i] = value;
    }
  return tables;
}

class Dct final : public Transform {
 public:
  explicit Dct(std::size_t size) : size_(size) {
    for (std::size_t length = 1; length <= size; ++length) tables_.push_back(tables_of(length));
  }
  void forward(std::span<float> values, std::uint32_t) const override { multiply(values, &Tables::forward); }
  void backward(std::span<float> values, std::uint32_t) const override { multiply(values, &Tables::backward); }

 private:
  void multiply(std::span<float> values, Table Tables::*which) const {
    std::array<float, most_values> from;
    for (std::size_t begin = 0; begin < values.size(); begin += size_) {
      const std::size_t size = std::min(size_, values.size() - begin);
      float* const to = values.data() + begin;
      std::copy_n(to, size, from.data());
      std::fill_n(to, size, 0.0F);
      const Table& table = tables_[size - 1].*which;
      for (std::size_t i = 0; i < size; ++i) kernel::add_multiple(table.data() + i * size, from[i], to, size);
    }
  }

  std::size_t size_;
  std::vector<Tables> tables_;  // by length - 1
};

}  // namespace

void add_dct(Parameters& parameters, Draft& draft) {
  draft.transforms.push_back(std::make_unique<Dct>(parameters.block(most_values, "", most_values)));
}

}  // namespace ranvier
