// What all ranks must know alike to choose the same algorithm and to cut vectors at the same places.
#pragma once

#include <cstddef>
#include <functional>

#include "ranvier/communicator.h"
#include "ranvier/transport.h"

namespace ranvier::engine {

struct Terms {
  std::size_t slice_bytes = 4096;
  std::size_t buffered_bytes = 4096;
  bool crowded = false;
  double least_seconds_per_byte = 0;  // where sending is paced

  // Of one rank: what its transport prefers. `link_bytes_per_second`: 0 where sending is not paced.
  static Terms of(const TransportTraits&, bool crowded, double link_bytes_per_second);
};

// Ranks whose transports prefer different sizes (paced ones do) settle on the smallest, on the slowest pace, and all
// are crowded if one is. `run` runs a collective to its end; that also proves every link before the program relies on
// it.
Terms agree(const Terms& own, const std::function<void(const Request&)>& run);

}  // namespace ranvier::engine
