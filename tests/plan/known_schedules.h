// Schedules and links whose times a test can tell by itself.
#pragma once

#include <chrono>
#include <string_view>
#include <utility>
#include <vector>

#include "ranvier/schedule.h"
#include "ranvier/topology.h"

namespace ranvier::plan_testing {

inline constexpr LinkSpeed one_gigabyte{.bytes_per_second = 1e9,  // 1 byte a ns
                                        .latency = std::chrono::nanoseconds(500)};

inline Schedule all_reduce(std::string_view algorithm, Rank world, std::vector<Rank> dims = {}) {
  return find_algorithm(algorithm, Collective::all_reduce)
      .build({.collective = Collective::all_reduce, .world = world, .dims = std::move(dims)});
}

}  // namespace ranvier::plan_testing
