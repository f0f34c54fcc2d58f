// Layers and links whose times can be told by heart.
#pragma once

#include <chrono>

#include "ranvier/simulate.h"
#include "ranvier/workload.h"

namespace ranvier {

inline constexpr LinkSpeed one_byte_a_ns{.bytes_per_second = 1e9, .latency = std::chrono::nanoseconds(0)};

// Computed forward and backward; gradients that all replicas average.
inline Layer layer(double compute_ns, double gradient_bytes) {
  return {.name = "l",
          .forward = {.compute_ns = compute_ns},
          .weight_gradient = {.compute_ns = compute_ns,
                              .communications = {{Collective::all_reduce, gradient_bytes, Role::data}}}};
}

}  // namespace ranvier
