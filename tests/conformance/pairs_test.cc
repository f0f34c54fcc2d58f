// Pairs of transports beside the one that `auto` takes: what both sides carry together, once.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "conformance/collective_case.h"
#include "conformance/worlds.h"
#include "support/sanitized.h"

namespace ranvier::conformance {
namespace {

// Two hosts of two ranks each, which are not neighbours in a ring.
TEST(Pairs, ShmWithinHostsAndUdpBetweenThemCarryEveryCollective) {
  support::run_ranks(
      4,
      [](Communicator& comm) {
        EXPECT_EQ(comm.transport_name(), "shm+udp");
        std::size_t salt = 0;
        for (const Collective collective :
             {Collective::all_reduce, Collective::reduce, Collective::broadcast, Collective::all_gather,
              Collective::reduce_scatter, Collective::all_to_all, Collective::gather, Collective::scatter})
          for (const std::string& algorithm : algorithms_for(collective, comm.world()))
            for (const std::size_t count : {3, 4099, support::sanitized ? 10'007 : 100'003})
              run_case(comm, {.collective = collective,
                              .algorithm = algorithm,
                              .count = count,
                              .root = static_cast<Rank>(salt % 4),
                              .salt = ++salt});
      },
      cluster("shm+udp"));
}

TEST(Pairs, ShmWithinHostsAndUdpBetweenThemCarryMessages) {
  support::run_ranks(
      4,
      [](Communicator& comm) {
        const std::vector<std::int32_t> mine(70'001, comm.rank());
        std::vector<std::vector<std::int32_t>> got(4, std::vector<std::int32_t>(mine.size(), -1));
        std::vector<Work> works;
        for (Rank peer = 0; peer < comm.world(); ++peer) {
          if (peer == comm.rank()) continue;
          works.push_back(comm.start_send(mine, peer));
          works.push_back(comm.start_recv(got[static_cast<std::size_t>(peer)], peer));
        }
        for (Work& work : works) work.wait();
        got[static_cast<std::size_t>(comm.rank())] = mine;
        for (Rank peer = 0; peer < comm.world(); ++peer)
          EXPECT_EQ(got[static_cast<std::size_t>(peer)], std::vector<std::int32_t>(mine.size(), peer));
      },
      cluster("shm+udp"));
}

}  // namespace
}  // namespace ranvier::conformance
