// Transports between processes tell ranks that have no core each, whoever has bound them.
#include <gtest/gtest.h>
#include <sched.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/cpu_set.h"
#include "support/on_threads.h"
#include "transport/tcp_world.h"

namespace ranvier {
namespace {

std::vector<int> own_cores() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  EXPECT_EQ(sched_getaffinity(0, sizeof cpus, &cpus), 0);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &cpus)) cores.push_back(core);
  return cores;
}

TEST(Crowded, AreRanksThatMayRunOnFewerCoresThanTheyAre) {
  const std::vector<int> cores = own_cores();
  if (cores.size() < 2) GTEST_SKIP() << "this needs two cores";
  using Make = std::function<std::unique_ptr<Endpoint>(const WorldInfo&)>;
  const std::map<std::string, Make> transports{
      {"tcp", [](const WorldInfo& info) { return tcp_endpoint(info); }},
      {"udp", [](const WorldInfo& info) { return udp_endpoint(info); }},
      {"grpc", [](const WorldInfo& info) { return grpc_endpoint(info); }},
  };
  for (const auto& each : transports) {
    const std::string& name = each.first;
    const Make& make = each.second;
    for (const bool share : {false, true}) {
      std::vector<std::unique_ptr<Endpoint>> meeting(2);
      support::on_threads(2, [&](Rank rank) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cores[share ? 0 : static_cast<std::size_t>(rank)], &one);
        ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
        meeting[static_cast<std::size_t>(rank)] = make({.rank = rank, .world = 2});
      });
      for (const auto& transport : support::connect_all(meeting))
        EXPECT_EQ(transport->traits().crowded(), share) << name;
    }
  }
}

}  // namespace
}  // namespace ranvier
