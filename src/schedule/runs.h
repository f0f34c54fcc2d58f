// Chunks that lie together, which travel as one message.
#pragma once

#include <cstdint>
#include <vector>

namespace ranvier {

// Consecutive chunks.
struct Run {
  std::uint32_t first;
  std::uint32_t chunks;
};

inline std::vector<Run> runs_of(const std::vector<std::uint32_t>& sorted) {
  std::vector<Run> runs;
  for (const std::uint32_t chunk : sorted)
    if (!runs.empty() && runs.back().first + runs.back().chunks == chunk)
      ++runs.back().chunks;
    else
      runs.push_back({chunk, 1});
  return runs;
}

}  // namespace ranvier
