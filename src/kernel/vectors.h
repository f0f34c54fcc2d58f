// Sums and sizes of f32 vectors, as codecs need them.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>

namespace ranvier::kernel {

// to = a + b; to = a - b. `to` may be a or b exactly.
void add(const float* a, const float* b, float* to, std::size_t count);
void subtract(const float* a, const float* b, float* to, std::size_t count);
void multiply(const float* a, float factor, float* to, std::size_t count);
// to += a * factor, which do not overlap.
void add_multiple(const float* a, float factor, float* to, std::size_t count);

// values -= step * gradient, as torch's SGD has it bit by bit: rounded once where the machine multiplies and adds at
// once, twice where it does not. Of these only its bits depend on that: what ranks must agree on comes from one of
// them.
void descend(const float* gradient, float step, float* values, std::size_t count);

// Infinity or NaN if one is among them; 0 of nothing.
float largest_magnitude(const float* values, std::size_t count);
inline bool all_finite(std::span<const float> values) {
  return std::isfinite(largest_magnitude(values.data(), values.size()));
}
// to += a; the largest magnitude of the sums.
float add_and_measure(const float* a, float* to, std::size_t count);
// velocity = momentum * velocity + values; residual += velocity. None overlaps another.
void add_momentum(const float* values, float momentum, float* velocity, float* residual, std::size_t count);
double sum_of_magnitudes(const float* values, std::size_t count);
double sum_of_roots(const float* values, std::size_t count);  // of numbers that are not negative
// Of values of any magnitude: products may be beyond the range of f32, at either end.
double sum_of_squares(const float* values, std::size_t count);
double dot(const float* a, const float* b, std::size_t count);

// The magnitudes that reach `threshold`.
struct Tail {
  std::size_t count = 0;
  double sum = 0;
};
Tail tail_of(const float* values, std::size_t count, float threshold);

}  // namespace ranvier::kernel
