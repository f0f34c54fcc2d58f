#include "codec/scales.h"

#include <fmt/format.h>

#include <cstring>

#include "ranvier/error.h"

namespace ranvier {

float read_scale(const std::byte* at) {
  float scale;
  std::memcpy(&scale, at, sizeof scale);
  if (!(scale >= 0 && scale <= 0x1p100F))
    throw Error(ErrorKind::mismatch,
                fmt::format("a code has the scale {}, which no encoder writes; give the same codec "
                            "to every rank",
                            scale));
  return scale;
}

unsigned read_exponent(std::byte at) {
  const auto exponent = std::to_integer<unsigned>(at);
  if (exponent < 1 || exponent > 127 + 100)
    throw Error(ErrorKind::mismatch,
                fmt::format("a code has a scale with the exponent {}, which no encoder writes; give the same codec to "
                            "every rank",
                            exponent));
  return exponent;
}

}  // namespace ranvier
