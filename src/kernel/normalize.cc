// Plain loops, which the compiler turns into vectors of each instruction set in turn.
#include "kernel/normalize.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/normalize.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ranvier::kernel::HWY_NAMESPACE {

// In lanes and runs, as the sums of vectors.cc.
constexpr std::size_t lanes = 16, run = 4096;

double roots_loop(const float* values, std::size_t count) {
  double total = 0;
  for (std::size_t begin = 0; begin < count; begin += run) {
    const float* const part = values + begin;
    const std::size_t size = std::min(run, count - begin);
    float sums[lanes] = {};
    std::size_t i = 0;
    for (; i + lanes <= size; i += lanes)
      for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane] += std::sqrt(part[i + lane]);
    for (std::size_t lane = 0; i < size; ++i, ++lane) sums[lane] += std::sqrt(part[i]);
    for (const float sum : sums) total += static_cast<double>(sum);
  }
  return total;
}

HWY_INLINE float divisor(float usual, float factor) { return std::min(std::max(usual * factor, 1.0F), 0x1p60F); }
void divide_loop(float* HWY_RESTRICT values, const float* HWY_RESTRICT usual, float factor, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] /= divisor(usual[i], factor);
}
void multiply_loop(float* HWY_RESTRICT values, const float* HWY_RESTRICT usual, float factor, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] *= divisor(usual[i], factor);
}
void follow_loop(const float* HWY_RESTRICT values, float* HWY_RESTRICT usual, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float magnitude = std::fabs(values[i]);
    usual[i] += ((magnitude < INFINITY ? magnitude : usual[i]) - usual[i]) * 0x1p-7F;
  }
}

}  // namespace ranvier::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ranvier::kernel {

HWY_EXPORT(roots_loop);
HWY_EXPORT(divide_loop);
HWY_EXPORT(multiply_loop);
HWY_EXPORT(follow_loop);

double sum_of_roots(const float* values, std::size_t count) { return HWY_DYNAMIC_DISPATCH(roots_loop)(values, count); }
void divide_by_usual(float* values, const float* usual, float factor, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(divide_loop)(values, usual, factor, count);
}
void multiply_by_usual(float* values, const float* usual, float factor, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(multiply_loop)(values, usual, factor, count);
}
void follow_magnitudes(const float* values, float* usual, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(follow_loop)(values, usual, count);
}

}  // namespace ranvier::kernel
#endif
