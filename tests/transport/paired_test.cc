// Two transports as one: pairs of ranks inside a host and pairs between hosts, over worlds inside this process.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "ranvier/error.h"
#include "ranvier/transport.h"
#include "transport/paired.h"
#include "transport/streams.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Worlds = std::vector<std::unique_ptr<Transport>>;

// `host_of`: by rank.
Worlds paired_world(const std::vector<int>& host_of) {
  const auto world = static_cast<Rank>(host_of.size());
  Worlds between = loopback_world(world), result(host_of.size());
  for (int host = 0; host < world; ++host) {
    std::vector<Rank> members, local(host_of.size(), -1);
    for (Rank rank = 0; rank < world; ++rank) {
      if (host_of[static_cast<std::size_t>(rank)] != host) continue;
      local[static_cast<std::size_t>(rank)] = static_cast<Rank>(members.size());
      members.push_back(rank);
    }
    Worlds inside = loopback_world(static_cast<Rank>(std::max<std::size_t>(members.size(), 1)));
    for (std::size_t i = 0; i < members.size(); ++i) {
      const auto rank = static_cast<std::size_t>(members[i]);
      result[rank] = transport::paired_transport(std::move(inside[i]), local, std::move(between[rank]));
    }
  }
  return result;
}

TEST(Paired, StreamsOfAllPairsArriveWhole) {
  const Worlds world = paired_world({0, 1, 0, 1, 2});
  std::vector<std::jthread> ranks;
  for (const auto& transport : world)
    ranks.emplace_back([&transport] { testing::exchange_streams(*transport, 200'000, 7); });
}

TEST(Paired, SaysOfWhatItIsMadeAndPromisesWhatBothCanKeep) {
  const Worlds world = paired_world({0, 0, 1});
  EXPECT_EQ(world[0]->traits().name, "loopback+loopback");
  EXPECT_EQ(world[0]->rank(), 0);
  EXPECT_EQ(world[0]->world(), 3);
  EXPECT_THROW(world[0]->try_recv(3, 0, {}), Error);
}

TEST(Paired, LendsWithinAHostAndSendsBetweenThem) {
  const Worlds world = paired_world({0, 0, 1});
  PeerMemory& memory = *world[0]->peer_memory();
  const auto piece = memory.allocate(64 << 10);
  const ConstBytes body(piece.get(), 64 << 10);
  ASSERT_GT(memory.try_lend(1, 0, {}, body, false), 0U);
  EXPECT_GT(memory.lent(1, 0), 0U);
  const ConstBytes lent = world[1]->try_recv(0, 0, {});
  ASSERT_FALSE(lent.empty());
  world[1]->release(0, 0, lent.size());
  EXPECT_EQ(memory.lent(1, 0), 0U);
  ASSERT_GT(memory.try_lend(2, 0, {}, body, false), 0U);  // copied, so nothing stays lent
  EXPECT_EQ(memory.lent(2, 0), 0U);
}

TEST(Paired, ASleeperIsWokenFromEitherSide) {
  const Worlds world = paired_world({0, 0, 1});
  const std::byte one[1]{};
  for (const std::size_t sender : {1U, 2U}) {
    const auto from = static_cast<Rank>(sender);
    ASSERT_TRUE(world[0]->try_recv(from, 0, {}).empty());  // what is waited for
    std::jthread other([&] {
      std::this_thread::sleep_for(20ms);
      world[sender]->try_send(0, 0, {}, one);
    });
    const auto start = Clock::now();
    ConstBytes view;
    while (view.empty() && Clock::now() < start + 30s) {
      world[0]->wait(30s);
      view = world[0]->try_recv(from, 0, {});
    }
    EXPECT_EQ(view.size(), 1U);
    EXPECT_LT(Clock::now(), start + 30s);
    world[0]->release(from, 0, view.size());
  }
}

}  // namespace
}  // namespace ranvier
