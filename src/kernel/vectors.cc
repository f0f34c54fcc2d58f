// Plain loops, which the compiler turns into vectors of each instruction set in turn.
#include "kernel/vectors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/vectors.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ranvier::kernel::HWY_NAMESPACE {

void add_loop(const float* a, const float* b, float* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = a[i] + b[i];
}
void subtract_loop(const float* a, const float* b, float* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = a[i] - b[i];
}
void multiply_loop(const float* a, float factor, float* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = a[i] * factor;
}

void add_multiple_loop(const float* HWY_RESTRICT a, float factor, float* HWY_RESTRICT to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] += a[i] * factor;
}

namespace hn = hwy::HWY_NAMESPACE;
template <std::size_t lanes>
HWY_INLINE void descend_lanes(const float* gradient, float step, float* values, std::size_t& at, std::size_t count) {
  const hn::CappedTag<float, lanes> d;
  const auto size = hn::Lanes(d);
  for (; at + size <= count; at += size)
    hn::StoreU(hn::NegMulAdd(hn::LoadU(d, gradient + at), hn::Set(d, step), hn::LoadU(d, values + at)), d, values + at);
}
void descend_loop(const float* gradient, float step, float* values, std::size_t count) {
  std::size_t at = 0;
  descend_lanes<HWY_MAX_BYTES / sizeof(float)>(gradient, step, values, at, count);
  descend_lanes<1>(gradient, step, values, at, count);
}

// Without its sign, a float is ordered as its bits are, and NaN comes last.
float largest_loop(const float* values, std::size_t count) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<std::uint32_t>(values[i]) & 0x7FFFFFFFU);
  return std::bit_cast<float>(largest);
}

float add_and_measure_loop(const float* HWY_RESTRICT a, float* HWY_RESTRICT to, std::size_t count) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const float sum = a[i] + to[i];
    largest = std::max(largest, std::bit_cast<std::uint32_t>(sum) & 0x7FFFFFFFU);
    to[i] = sum;
  }
  return std::bit_cast<float>(largest);
}

void add_momentum_loop(const float* HWY_RESTRICT values, float momentum, float* HWY_RESTRICT velocity,
                       float* HWY_RESTRICT residual, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    velocity[i] = momentum * velocity[i] + values[i];
    residual[i] += velocity[i];
  }
}

// Sums in so many lanes: adding floats in another order is not the compiler's to decide. Runs of 4096 are short enough
// for f32, and their sums are added as f64.
constexpr std::size_t sum_lanes = 16;
constexpr std::size_t run = 4096;

// Of at most a run. (What takes a value's number, and not the value, gcc leaves scalar.)
template <class Term>
HWY_INLINE double terms_of(const float* values, std::size_t count, const Term& term) {
  float sums[sum_lanes] = {};
  std::size_t i = 0;
  for (; i + sum_lanes <= count; i += sum_lanes)
    for (std::size_t lane = 0; lane < sum_lanes; ++lane) sums[lane] += term(values[i + lane]);
  for (std::size_t lane = 0; i < count; ++i, ++lane) sums[lane] += term(values[i]);
  double total = 0;
  for (const float sum : sums) total += static_cast<double>(sum);
  return total;
}

template <class Term>
HWY_INLINE double sum_of_terms(const float* values, std::size_t count, const Term& term) {
  double total = 0;
  for (std::size_t begin = 0; begin < count; begin += run)
    total += terms_of(values + begin, std::min(run, count - begin), term);
  return total;
}

double magnitudes_loop(const float* values, std::size_t count) {
  return sum_of_terms(values, count, [](float value) HWY_ATTR { return std::fabs(value); });
}
double roots_loop(const float* values, std::size_t count) {
  return sum_of_terms(values, count, [](float value) HWY_ATTR { return std::sqrt(value); });
}
// The products of a run, in the same lanes.
template <class Number>
HWY_INLINE double products_of(const float* a, const float* b, std::size_t count) {
  Number sums[sum_lanes] = {};
  std::size_t i = 0;
  for (; i + sum_lanes <= count; i += sum_lanes)
    for (std::size_t lane = 0; lane < sum_lanes; ++lane)
      sums[lane] += static_cast<Number>(a[i + lane]) * static_cast<Number>(b[i + lane]);
  for (std::size_t lane = 0; i < count; ++i, ++lane)
    sums[lane] += static_cast<Number>(a[i]) * static_cast<Number>(b[i]);
  double total = 0;
  for (const Number sum : sums) total += static_cast<double>(sum);
  return total;
}

// A product below 2^-126 loses digits of a float, or all of them. Where a run adds up to 2^-90 or more, that is below
// 2^-24 of it; less, and what is beyond the largest float, is added up once more as f64.
HWY_INLINE double sum_of_products(const float* a, const float* b, std::size_t count) {
  double total = 0;
  for (std::size_t begin = 0; begin < count; begin += run) {
    const std::size_t size = std::min(run, count - begin);
    const double sum = products_of<float>(a + begin, b + begin, size), magnitude = std::fabs(sum);
    const bool is_exact = magnitude >= 0x1p-90 && magnitude <= 0x1p128;
    total += is_exact ? sum : products_of<double>(a + begin, b + begin, size);
  }
  return total;
}

double squares_loop(const float* values, std::size_t count) { return sum_of_products(values, values, count); }
double dot_loop(const float* a, const float* b, std::size_t count) { return sum_of_products(a, b, count); }

Tail tail_loop(const float* values, std::size_t count, float threshold) {
  Tail tail;
  for (std::size_t begin = 0; begin < count; begin += run) {
    const float* const part = values + begin;
    const std::size_t size = std::min(run, count - begin);
    tail.sum += terms_of(part, size, [threshold](float value) HWY_ATTR {
      const float magnitude = std::fabs(value);
      return magnitude >= threshold ? magnitude : 0.0F;
    });
    std::uint32_t here = 0;
    for (std::size_t i = 0; i < size; ++i) here += std::fabs(part[i]) >= threshold ? 1U : 0U;
    tail.count += here;
  }
  return tail;
}

}  // namespace ranvier::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ranvier::kernel {

HWY_EXPORT(add_loop);
HWY_EXPORT(subtract_loop);
HWY_EXPORT(multiply_loop);
HWY_EXPORT(add_multiple_loop);
HWY_EXPORT(descend_loop);
HWY_EXPORT(largest_loop);
HWY_EXPORT(add_and_measure_loop);
HWY_EXPORT(add_momentum_loop);
HWY_EXPORT(magnitudes_loop);
HWY_EXPORT(roots_loop);
HWY_EXPORT(squares_loop);
HWY_EXPORT(dot_loop);
HWY_EXPORT(tail_loop);

void add(const float* a, const float* b, float* to, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(add_loop)(a, b, to, count);
}
void subtract(const float* a, const float* b, float* to, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(subtract_loop)(a, b, to, count);
}
void multiply(const float* a, float factor, float* to, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(multiply_loop)(a, factor, to, count);
}
void add_multiple(const float* a, float factor, float* to, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(add_multiple_loop)(a, factor, to, count);
}
void descend(const float* gradient, float step, float* values, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(descend_loop)(gradient, step, values, count);
}
float largest_magnitude(const float* values, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(largest_loop)(values, count);
}
float add_and_measure(const float* a, float* to, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(add_and_measure_loop)(a, to, count);
}
void add_momentum(const float* values, float momentum, float* velocity, float* residual, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(add_momentum_loop)(values, momentum, velocity, residual, count);
}
double sum_of_magnitudes(const float* values, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(magnitudes_loop)(values, count);
}
double sum_of_roots(const float* values, std::size_t count) { return HWY_DYNAMIC_DISPATCH(roots_loop)(values, count); }
double sum_of_squares(const float* values, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(squares_loop)(values, count);
}
Tail tail_of(const float* values, std::size_t count, float threshold) {
  return HWY_DYNAMIC_DISPATCH(tail_loop)(values, count, threshold);
}
double dot(const float* a, const float* b, std::size_t count) { return HWY_DYNAMIC_DISPATCH(dot_loop)(a, b, count); }

}  // namespace ranvier::kernel
#endif
