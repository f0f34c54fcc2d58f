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

namespace {

// Makes its length 1, whatever it was; false where it was 0.
bool normalize(float* vector, std::size_t length) {
  double norm = std::sqrt(kernel::sum_of_squares(vector, length));
  if (!(norm > 0)) return false;
  constexpr double lowest = 0x1p-100;  // below, 1 / norm may be beyond what a float holds
  if (norm < lowest) {
    kernel::multiply(vector, static_cast<float>(1 / lowest), vector, length);
    norm /= lowest;
  }
  kernel::multiply(vector, static_cast<float>(1 / norm), vector, length);
  return true;
}

// Makes a vector of length 1 orthogonal to those before it, and its length 1 again. False where they span it up to
// rounding. What is left of much longer sums is not orthogonal yet: "twice is enough" (Giraud, Langou and Rozloznik,
// Computers and Mathematics with Applications 2005).
bool orthogonalize(const float* before, std::size_t count, float* vector, std::size_t length) {
  constexpr double least_left = 1e-5;
  for (int pass = 0; pass < 2; ++pass) {
    for (std::size_t other = 0; other < count; ++other) {
      const float* const direction = before + other * length;
      kernel::add_multiple(direction, -static_cast<float>(kernel::dot(direction, vector, length)), vector, length);
    }
    if (!(kernel::sum_of_squares(vector, length) > least_left * least_left)) return false;
    normalize(vector, length);
  }
  return true;
}

}  // namespace

void orthonormalize(float* vectors, std::size_t length, std::size_t rank) {
  for (std::size_t k = 0; k < rank; ++k) {
    float* const vector = vectors + k * length;
    if (normalize(vector, length) && orthogonalize(vectors, k, vector, length)) continue;
    // A few times at most: normal values are in the span of fewer than `length` vectors with probability 0.
    bool is_made = false;
    for (std::uint64_t seed = 0; k < length && !is_made && seed < 4; ++seed) {
      fill_factors({vector, length}, {}, (seed << 32) + k);
      is_made = normalize(vector, length) && orthogonalize(vectors, k, vector, length);
    }
    if (!is_made) std::fill_n(vector, length, 0.0F);
  }
}

}  // namespace ranvier
