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

HWY_EXPORT(divide_loop);
HWY_EXPORT(multiply_loop);
HWY_EXPORT(follow_loop);

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
