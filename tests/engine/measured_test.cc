// What ranks make of their links when they meet.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "engine/link_probe.h"
#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "ranvier/store.h"

namespace ranvier {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr Rank measured_ranks = 4;

// As the ranks of one world, over real links. Throws what rank 0 throws.
void connected(const CommunicatorOptions& options, const std::function<void(Communicator&)>& body) {
  const auto store = memory_store();
  const auto join = [&](Rank rank) { body(*Communicator::connect(*store, rank, measured_ranks, options)); };
  std::vector<std::jthread> others;
  for (Rank rank = 1; rank < measured_ranks; ++rank)
    others.emplace_back([&join, rank] {
      try {
        join(rank);
      } catch (const Error&) {  // rank 0 has the same one
      }
    });
  join(0);
}

// Until bytes take long, and not until the path does. A busy machine may make it look so: then it is tried again.
TEST(LinkProbe, SendsMoreWhereThePathIsLong) {
  std::size_t most = 0;
  for (int attempt = 0; attempt < 5 && most < (256 << 10); ++attempt) {
    const auto line = [&most](const Request& request) {
      if (request.algorithm.empty()) return;  // what the slowest rank says is here already
      most = std::max(most, request.output.bytes());
      std::this_thread::sleep_for(std::chrono::microseconds(20'000 + request.output.bytes() / 50));
    };
    engine::measure_links(engine::nominal_links("tcp", false),
                          {.world = 2, .on_one_host = false, .slice_bytes = 512 << 10}, line);
  }
  EXPECT_GE(most, 256U << 10);
}

class Measured : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, Measured, testing::Values("shm", "tcp"));

TEST_P(Measured, LinksAndTablesAreTheSameOnAllRanks) {
  std::array<LinkModel, measured_ranks> links;
  std::array<std::string, measured_ranks> tables;
  connected({.transport = GetParam()}, [&](Communicator& comm) {
    links[static_cast<std::size_t>(comm.rank())] = comm.links();
    tables[static_cast<std::size_t>(comm.rank())] = comm.tuning().text();
  });
  for (std::size_t rank = 1; rank < measured_ranks; ++rank) {
    EXPECT_EQ(links[rank], links[0]);
    EXPECT_EQ(tables[rank], tables[0]);
  }
  EXPECT_GT(links[0].latency, 0);
  EXPECT_GT(links[0].byte, 0);
  EXPECT_EQ(TuningTable::parse(tables[0], "its text").text(), tables[0]);
}

TEST_P(Measured, ButNotWhereThatIsTurnedOff) {
  connected({.transport = GetParam(), .measure = false}, [&](Communicator& comm) {
    EXPECT_EQ(comm.links(), engine::nominal_links(GetParam(), comm.links().crowded));
    EXPECT_EQ(comm.traffic().operations, 1U) << "to agree on how large slices are";
  });
}

TEST_P(Measured, LinksOfAPartAreThoseOfTheWhole) {
  connected({.transport = GetParam()}, [&](Communicator& comm) {
    const auto half = comm.split(comm.rank() % 2);
    EXPECT_EQ(half->links(), comm.links());
    std::array<float, 1> one{1};
    half->all_reduce(one);
    EXPECT_EQ(one[0], 2);
  });
}

TEST_P(Measured, APartOfAllRanksChoosesAsTheWholeAndGoesOnToWhenItFollowsNothing) {
  connected({.transport = GetParam()}, [&](Communicator& comm) {
    const std::string table = comm.tuning().text();
    const auto all = comm.split(0, -comm.rank());
    EXPECT_EQ(all->tuning().text(), table);
    comm.follow({});
    EXPECT_EQ(comm.tuning().text(), table);
  });
}

TEST_P(Measured, HoweverLongThatTakesTheFirstCallOfAProgramIsNumberZero) {
  connected({.transport = GetParam()}, [&](Communicator& comm) {
    const auto half = comm.split(comm.rank() % 2);
    std::array<float, 1> one{1};
    for (const std::uint32_t number : {0U, 1U, 2U, 3U, 4U}) {
      const Work work = half->start({.input = one, .output = one});
      Work(work).wait();
      EXPECT_EQ(work.sequence(), number);
    }
    EXPECT_THAT(half->flight_record(), StartsWith("#0 all_reduce f32 sum")) << "and not with the meeting";
  });
}

TEST_P(Measured, PacedSendingIsKnownHoweverShortTheMeasurement) {
  connected({.transport = GetParam(), .link_bytes_per_second = 1e6},
            [&](Communicator& comm) { EXPECT_GE(comm.links().byte, 0.7e-6); });
}

// Of hosts that are apart, the last of which sends a thousandth as fast as the others.
TEST(UnequalLines, AreKnownByRankAndWhoseIsSlowPassesNothingOn) {
  const auto store = memory_store();
  std::array<LinkModel, measured_ranks> links, of_part;
  std::vector<std::jthread> ranks;
  for (Rank rank = 0; rank < measured_ranks; ++rank)
    ranks.emplace_back([&, rank] {
      const auto own = static_cast<std::size_t>(rank);
      const auto comm = Communicator::connect(
          *store, rank, measured_ranks,
          {.transport = "tcp", .node = "host " + std::to_string(rank), .link_bytes_per_second = rank == 3 ? 1e6 : 0});
      links[own] = comm->links();
      const auto part = comm->split(rank == 1 ? -1 : 0, -rank);
      if (part) of_part[own] = part->links();
      std::vector<float> data(16 << 10, 1);
      const std::uint64_t before = comm->traffic().bytes_sent;
      comm->all_reduce(data);
      EXPECT_EQ(data.back(), measured_ranks);
      if (rank == 3) {
        EXPECT_LE(comm->traffic().bytes_sent - before, data.size() * sizeof(float)) << "its own, once";
      }
      comm->barrier();
    });
  ranks.clear();
  const std::vector<double>& lines = links[0].lines;
  ASSERT_EQ(lines.size(), std::size_t{measured_ranks});
  EXPECT_EQ(lines[3], 1);
  for (const std::size_t other : {0, 1, 2}) EXPECT_LE(lines[other], 0.25) << other;
  for (const LinkModel& each : links) EXPECT_EQ(each, links[0]);
  for (const std::size_t member : {3, 2, 0})
    EXPECT_THAT(of_part[member].lines, testing::ElementsAre(lines[3], lines[2], lines[0]));
}

TEST_P(Measured, ATableThatIsFollowedComesFirst) {
  connected({.transport = GetParam()}, [&](Communicator& comm) {
    comm.follow(TuningTable::parse(std::string("all_reduce ") + GetParam() + " 4 1K parameter_server", "table"));
    EXPECT_EQ(comm.tuning().find(Collective::all_reduce, GetParam(), measured_ranks, 1024)->algorithm().name,
              "parameter_server");
    EXPECT_TRUE(comm.tuning().find(Collective::all_reduce, GetParam(), measured_ranks, 1 << 20))
        << "the model has the rest";
    const std::uint64_t before = comm.traffic().bytes_sent;
    std::array<float, 256> data{};
    comm.all_reduce(data);
    EXPECT_EQ(comm.traffic().bytes_sent - before, (comm.rank() == 0 ? measured_ranks - 1 : 1) * sizeof data)
        << "that of a parameter server";
  });
}

TEST(Topologies, ThatLackALinkRefuseTheAlgorithmOnEveryRankBeforeDataMoves) {
  connected({.transport = "tcp", .topology = "mesh:2x2"}, [&](Communicator& comm) {
    std::array<float, 4> data{1, 1, 1, 1};
    try {
      comm.all_reduce(data, {.algorithm = "direct"});
      ADD_FAILURE() << "ran";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_THAT(error.what(), HasSubstr("sends to rank 3"));
    }
    EXPECT_EQ(data[0], 1);
    comm.all_reduce(data);
    EXPECT_EQ(data[0], measured_ranks);
    comm.barrier();
  });
}

TEST(Topologies, ThatDoNotSuitTheWorldAreRefusedBeforeRanksMeet) {
  EXPECT_THROW(connected({.topology = "mesh:2x3"}, [](Communicator&) {}), Error);
  EXPECT_THROW(connected({.topology = "messh:2x2"}, [](Communicator&) {}), Error);
}

}  // namespace
}  // namespace ranvier
