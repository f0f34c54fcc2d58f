// Which buckets of gradients overtake others.
#pragma once

#include <cstddef>

#include "ranvier/transport.h"

namespace ranvier::trainer {

// Of bucket `number` of `count`, in the order in which backward completes them. The last ones belong to the layers that
// the next forward needs first (Peng et al., "A Generic Communication Scheduler for Distributed DNN Training
// Acceleration", SOSP 2019), and nothing is left to hide their rounds behind: they pass between the slices of larger
// ones, which keep the links busy meanwhile. One of each urgent class, since those of one class wait for each other.
constexpr int bucket_priority(std::size_t number, std::size_t count) {
  const std::size_t behind = count - 1 - number;
  return number == 0 || behind >= urgent_lanes ? 0 : static_cast<int>(urgent_lanes - behind);
}

}  // namespace ranvier::trainer
