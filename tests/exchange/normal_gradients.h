// Gradients that every test of exchanges can make again: normal values by rank and step, and what they add up to.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "ranvier/communicator.h"
#include "support/normal_values.h"

namespace ranvier {

inline std::vector<float> gradients(Rank rank, std::size_t count, unsigned step = 0) {
  return support::normal_values(count, static_cast<unsigned>(rank) * 1000 + step);
}

inline std::vector<double> exact_sum(Rank world, std::size_t count, unsigned step = 0) {
  std::vector<double> sum(count);
  for (Rank rank = 0; rank < world; ++rank) {
    const auto values = gradients(rank, count, step);
    for (std::size_t i = 0; i < count; ++i) sum[i] += static_cast<double>(values[i]);
  }
  return sum;
}

// Bit for bit, NaN included.
inline void expect_equal_everywhere(Communicator& comm, const std::vector<float>& mine) {
  std::vector<float> all(mine.size() * static_cast<std::size_t>(comm.world()));
  comm.all_gather(mine, all);
  if (mine.empty()) return;  // memcmp takes no null
  for (Rank rank = 0; rank < comm.world(); ++rank)
    ASSERT_EQ(0, std::memcmp(all.data() + mine.size() * static_cast<std::size_t>(rank), mine.data(), mine.size() * 4))
        << "rank " << rank << " has other bits than rank " << comm.rank();
}

}  // namespace ranvier
