#include "codec/scales.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "ranvier/error.h"

namespace ranvier {

float read_scale(const std::byte* at) {
  float scale;
  std::memcpy(&scale, at, sizeof scale);
  if (!(std::fabs(scale) <= 0x1p100F))
    throw Error(ErrorKind::mismatch,
                fmt::format("a code has the scale {}, which no encoder writes; give the same codec "
                            "to every rank",
                            scale));
  return scale;
}

}  // namespace ranvier
