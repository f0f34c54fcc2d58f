// Low-rank averages: the arithmetic on one matrix, apart from how factors travel. exchange.h has the exchange; the hook
// of the Python package does the same over any process group. Sources: LowRankOptions in exchange.h.
//
// A matrix M of rows x columns is approximated by P Q^T with P of rows x rank and Q of columns x rank. Both are kept by
// column, each a contiguous vector: column k of P begins at P + k * rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ranvier {

struct MatrixShape {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t rank = 0;
};

// What a matrix pays for: at most `rank`, and factors of a third of it or less. Rank 0 where even one column is more:
// it goes as it is.
MatrixShape low_rank_shape(std::size_t rows, std::size_t columns, std::size_t rank);
// Normal values that follow from the seed: where factors begin. The same on all ranks.
void fill_factors(std::span<float> left, std::span<float> right, std::uint64_t seed);

// P = M Q.
void multiply_by_right(const MatrixShape&, const float* matrix, const float* right, float* left);
// Q = M^T P.
void multiply_by_left(const MatrixShape&, const float* matrix, const float* left, float* right);
// M = P Q^T.
void multiply_factors(const MatrixShape&, const float* left, const float* right, float* matrix);
// Makes `rank` vectors of `length` orthonormal, one after the other (Gram-Schmidt, twice), whatever their magnitude. A
// vector that is 0, or that the ones before it span, tells of no direction of its own: a random one takes its place,
// the same on all ranks, or a matrix that was 0 or of a lower rank once would never be averaged in all its directions
// again. Of more vectors than `length`, those that cannot be are 0. The same bits for the same input.
void orthonormalize(float* vectors, std::size_t length, std::size_t rank);

}  // namespace ranvier
