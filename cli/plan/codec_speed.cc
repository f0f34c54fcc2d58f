#include "plan/codec_speed.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "ranvier/codec.h"

namespace ranvier::planning {

CodecSpeed measure_codec(std::string_view spec) {
  using Clock = std::chrono::steady_clock;
  constexpr std::size_t count = 1 << 20;
  constexpr int samples = 5;
  const auto codec = make_codec(spec);
  // A sum of waves: neither constant, which entropy coders would love, nor random, which no seed makes repeatable.
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto x = static_cast<float>(i);
    values[i] = 0.01F * (std::sin(x * 0.37F) + std::sin(x * 1.731F) * std::sin(x * 0.0011F));
  }
  std::vector<std::byte> code(codec->max_bytes(count));
  std::size_t bytes = 0;
  auto encode = std::chrono::nanoseconds::max();
  auto decode = std::chrono::nanoseconds::max();
  for (int i = 0; i < samples; ++i) {
    const auto begin = Clock::now();
    bytes = codec->encode(values, {}, code, {});
    const auto between = Clock::now();
    codec->decode(ConstBytes(code).first(bytes), values);
    encode = std::min<std::chrono::nanoseconds>(encode, between - begin);
    decode = std::min<std::chrono::nanoseconds>(decode, Clock::now() - between);
  }
  constexpr double gradient_bytes = count * sizeof(float);
  return {.spec = std::string(spec),
          .wire_bytes = static_cast<double>(bytes) / gradient_bytes,
          .encode_ns_per_byte = static_cast<double>(encode.count()) / gradient_bytes,
          .decode_ns_per_byte = static_cast<double>(decode.count()) / gradient_bytes,
          .summable = codec->summable_as().has_value()};
}

}  // namespace ranvier::planning
