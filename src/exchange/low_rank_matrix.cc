#include <algorithm>
#include <cmath>
#include <random>

#include "kernel/vectors.h"
#include "ranvier/low_rank.h"

namespace ranvier {

MatrixShape low_rank_shape(std::size_t rows, std::size_t columns, std::size_t rank) {
  constexpr std::size_t least_saving = 3;
  const std::size_t paying = rows * columns / (least_saving * std::max<std::size_t>(rows + columns, 1));
  return {.rows = rows, .columns = columns, .rank = std::min(rank, paying)};
}

void fill_factors(std::span<float> left, std::span<float> right, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (const auto factor : {left, right})
    for (float& value : factor) value = normal(random);
}

void multiply_by_right(const MatrixShape& shape, const float* matrix, const float* right, float* left) {
  for (std::size_t row = 0; row < shape.rows; ++row)
    for (std::size_t k = 0; k < shape.rank; ++k)
      left[k * shape.rows + row] =
          static_cast<float>(kernel::dot(matrix + row * shape.columns, right + k * shape.columns, shape.columns));
}

void multiply_by_left(const MatrixShape& shape, const float* matrix, const float* left, float* right) {
  std::fill_n(right, shape.rank * shape.columns, 0.0F);
  for (std::size_t row = 0; row < shape.rows; ++row)
    for (std::size_t k = 0; k < shape.rank; ++k)
      kernel::add_multiple(matrix + row * shape.columns, left[k * shape.rows + row], right + k * shape.columns,
                           shape.columns);
}

void multiply_factors(const MatrixShape& shape, const float* left, const float* right, float* matrix) {
  std::fill_n(matrix, shape.rows * shape.columns, 0.0F);
  for (std::size_t row = 0; row < shape.rows; ++row)
    for (std::size_t k = 0; k < shape.rank; ++k)
      kernel::add_multiple(right + k * shape.columns, left[k * shape.rows + row], matrix + row * shape.columns,
                           shape.columns);
}

void orthonormalize(float* vectors, std::size_t length, std::size_t rank) {
  for (std::size_t k = 0; k < rank; ++k) {
    float* const vector = vectors + k * length;
    const double before = std::sqrt(kernel::sum_of_squares(vector, length));
    for (std::size_t other = 0; other < k; ++other) {
      const float* const direction = vectors + other * length;
      kernel::add_multiple(direction, -static_cast<float>(kernel::dot(direction, vector, length)), vector, length);
    }
    const double norm = std::sqrt(kernel::sum_of_squares(vector, length));
    const bool is_left = norm > 1e-5 * before && norm > 1e-15;
    kernel::multiply(vector, is_left ? static_cast<float>(1 / norm) : 0.0F, vector, length);
  }
}

}  // namespace ranvier
