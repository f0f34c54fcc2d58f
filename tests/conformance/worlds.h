// Test fixtures that run a sentence over every way to form a world, and over worlds of several sizes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "support/cluster.h"
#include "support/sanitized.h"

namespace ranvier::conformance {

// Small ones, odd ones, powers of two, and under sanitizers not all of them.
inline std::vector<Rank> world_sizes() {
  if (support::sanitized) return {1, 2, 3, 5, 8};
  return {1, 2, 3, 4, 5, 6, 7, 8};
}

using WorldList = std::vector<std::tuple<std::string_view, Rank>>;

// Every way with each of these, and the slower ones with three ranks, which as a pair are two on one host and one
// alone.
inline WorldList worlds() {
  WorldList result;
  for (const std::string_view way : support::all_ways()) {
    const bool slow = way != "loopback" && way != "simulated" && way != "shm" && way != "tcp";
    for (const Rank world : slow ? std::vector<Rank>{3} : world_sizes()) result.emplace_back(way, world);
  }
  return result;
}

// Every way with each of these from `least` on, for tests that run little in each.
inline WorldList all_worlds(Rank least = 1) {
  WorldList result;
  for (const std::string_view way : support::all_ways())
    for (const Rank world : world_sizes())
      if (world >= least) result.emplace_back(way, world);
  return result;
}

// What the simulated world does to these tests: small slices, so that everything streams; losses, reorderings, partial
// transfers and late reads.
inline SimulationOptions hostile_simulation(std::uint64_t seed) {
  return {.seed = seed, .loss = 0.02, .slice_bytes = 2048, .cut = 0.1, .deferred_reads = true};
}

inline support::ClusterOptions cluster(std::string_view way) {
  return {.way = way, .simulation = hostile_simulation(1)};
}

// How long a rank waits that nobody will tell of a disagreement; a simulation finds by itself that all wait in vain.
inline constexpr std::chrono::milliseconds alone = std::chrono::seconds(1);

// Over one way to form a world; the test says how many ranks.
class Ways : public testing::TestWithParam<std::string_view> {
 protected:
  bool simulated() const { return GetParam() == "simulated"; }
  // Whether ranks have a control plane, by which a failure of one reaches all.
  bool connected() const { return !simulated() && GetParam() != "loopback"; }
  std::chrono::milliseconds patience() const { return connected() || simulated() ? std::chrono::seconds(60) : alone; }
  support::ClusterOptions options() const { return cluster(GetParam()); }
  void run(Rank world, const support::RankBody& body) const { support::run_ranks(world, body, options()); }
};

// Over one way and one number of ranks.
class Worlds : public testing::TestWithParam<std::tuple<std::string_view, Rank>> {
 protected:
  void run(const support::RankBody& body) const {
    const auto [way, world] = GetParam();
    support::run_ranks(world, body, cluster(way));
  }
};

inline std::string name_of_way(const testing::TestParamInfo<std::string_view>& info) { return std::string(info.param); }
inline std::string name_of_world(const testing::TestParamInfo<std::tuple<std::string_view, Rank>>& info) {
  return std::string(std::get<0>(info.param)) + "_" + std::to_string(std::get<1>(info.param));
}

}  // namespace ranvier::conformance
