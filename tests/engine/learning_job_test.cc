// Communicators whose "auto" learns: whose table they follow, what is in the file at the end, what others are told.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/message_header.h"
#include "engine/selection.h"
#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "ranvier/schedule.h"
#include "ranvier/store.h"
#include "ranvier/topology.h"
#include "support/cluster.h"
#include "support/on_threads.h"
#include "support/temporary_folder.h"
#include "support/transport_over.h"

namespace ranvier::engine {
namespace {

namespace fs = std::filesystem;
using support::on_threads;
using support::text_of;
using testing::HasSubstr;

CommunicatorOptions learning() {
  CommunicatorOptions options = support::ClusterOptions::patient();
  options.learn = true;
  options.measure = false;
  return options;
}

// A link over which each message of one algorithm takes long, so that the model is wrong by much.
class SlowBy final : public support::TransportOver {
 public:
  SlowBy(std::unique_ptr<Transport> inner, const std::atomic<std::size_t>& algorithm)
      : TransportOver(std::move(inner)), algorithm_(algorithm) {}

  TransportTraits traits() const override {
    TransportTraits traits = TransportOver::traits();
    traits.name = "tcp";
    return traits;
  }
  std::size_t try_send(Rank to, Lane lane, ConstBytes head, ConstBytes body) override {
    if (head.size() == sizeof(MessageHeader)) {
      MessageHeader header;
      std::memcpy(&header, head.data(), sizeof header);
      if (header.algorithm == algorithm_.load() && header.dtype == DType::f32)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return TransportOver::try_send(to, lane, head, body);
  }

 private:
  const std::atomic<std::size_t>& algorithm_;
};

constexpr Rank learners = 4;
constexpr std::size_t bytes = 64 << 10;

// Ranks find that what auto takes is slow, and leave. Of each rank its own file; `before_leaving` on all of them.
void find_out(
    const std::function<CommunicatorOptions(Rank)>& options, const std::function<void()>& before_leaving = [] {}) {
  std::atomic<std::size_t> slow = algorithms().size();
  auto transports = loopback_world(learners);
  std::atomic<int> ready = 0;
  on_threads(learners, [&](Rank rank) {
    const auto comm = Communicator::over(
        std::make_unique<SlowBy>(std::move(transports[static_cast<std::size_t>(rank)]), slow), options(rank));
    slow = comm->tuning().find(Collective::all_reduce, "tcp", learners, bytes)->index;
    std::vector<float> data(bytes / sizeof(float));
    for (int i = 0; i < 90; ++i) comm->all_reduce(data);
    EXPECT_NE(comm->tuning().find(Collective::all_reduce, "tcp", learners, bytes)->index, slow);
    ++ready;
    while (ready < learners) std::this_thread::yield();
    if (rank == 0) before_leaving();
    EXPECT_NO_THROW(comm->leave());
  });
}

TEST(LearningJob, Rank0KeepsWhatAllHaveLearned) {
  const support::TemporaryFolder folder;
  const auto file_of = [&](Rank rank) { return folder.path() / std::to_string(rank); };
  find_out([&](Rank rank) {
    CommunicatorOptions options = learning();
    options.tuning = file_of(rank).string();
    return options;
  });
  ASSERT_TRUE(fs::exists(file_of(0)));
  EXPECT_TRUE(TuningTable::read(file_of(0)).find(Collective::all_reduce, "tcp", learners, bytes));
  EXPECT_THAT(text_of(file_of(0)), HasSubstr(" learned\n"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1) << "and nobody else";
}

TEST(LearningJob, GroupsKeepNothing) {
  const support::TemporaryFolder folder;
  find_out([&](Rank) {
    CommunicatorOptions options = learning();
    options.tuning = (folder.path() / "tuning.txt").string();
    options.world_ranks = {0, 2, 4, 6};
    return options;
  });
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(LearningJob, WhatCannotBeKeptStopsNobodyFromLeaving) {
  const support::TemporaryFolder folder;
  const fs::path place = folder.path() / "place";
  fs::create_directory(place);
  testing::internal::CaptureStderr();
  find_out(
      [&](Rank) {
        CommunicatorOptions options = learning();
        options.tuning = (place / "tuning.txt").string();
        return options;
      },
      [&] {
        fs::remove(place);
        fs::create_symlink("place", place);
      });
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("what auto learned is lost: cannot "));
}

TEST(LearningJob, AllFollowTheTableOfRank0) {
  const support::TemporaryFolder folder;
  const std::string other = "all_reduce tcp 3 max direct\n";
  std::ofstream(folder.path() / "0") << "all_reduce tcp 3 1M ring learned\nall_reduce tcp 3 max auto\n";
  std::ofstream(folder.path() / "1") << other;
  const auto store = memory_store();
  std::vector<std::string> tables(3), of_groups(3);
  on_threads(3, [&](Rank rank) {
    CommunicatorOptions options = learning();
    options.transport = "tcp";
    // The last one's cannot be read.
    options.tuning = (folder.path() / (rank == 2 ? std::string(300, 'x') : std::to_string(rank))).string();
    const auto comm = Communicator::connect(*store, rank, 3, options);
    const auto group = comm->split(0);
    tables[static_cast<std::size_t>(rank)] = comm->tuning().text();
    of_groups[static_cast<std::size_t>(rank)] = group->tuning().text();
    comm->barrier();
  });
  EXPECT_THAT(tables[0], testing::ContainsRegex("all_reduce +tcp +3 +1M +ring learned"));
  EXPECT_THAT(tables, testing::Each(tables[0]));
  EXPECT_THAT(of_groups, testing::Each(tables[0]));
  EXPECT_EQ(text_of(folder.path() / "1"), other);
}

TEST(LearningJob, ATableThatCannotBeLookedForIsRefusedWithARemedy) {
  CommunicatorOptions options = learning();
  options.tuning = std::string(300, 'x');
  try {
    Communicator::connect(*memory_store(), 0, 1, options);
    ADD_FAILURE() << "connected";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::config);
    EXPECT_THAT(error.what(), HasSubstr("name another file"));
  }
}

// On one rank, where the ranks were to agree: the others know nothing of it.
TEST(LearningJob, ACallThatIsRefusedBringsNoAgreementAbout) {
  for (const bool started : {false, true})
    support::run_ranks(2,
                       [&](Communicator& comm) {
                         std::vector<float> data(1000, 1);
                         for (int i = 0; i < 50; ++i) comm.all_reduce(data, {.op = ReduceOp::max});
                         if (comm.rank() == 1) {
                           const Request wrong{.input = std::span(data).first(999), .output = data};
                           EXPECT_THROW(started ? comm.start(wrong).wait() : comm.run(wrong), Error);
                         }
                         comm.barrier();
                         comm.all_reduce(data);
                         EXPECT_EQ(data[0], 2.F);
                       },
                       {.communicator = learning()});
}

TEST(LearningJob, AnErrorSaysWhichCallIsNoneOfTheProgram) {
  std::vector<std::string> told(2);
  support::run_ranks(2,
                     [&](Communicator& comm) {
                       std::vector<float> data(1000);
                       for (int i = 0; i < 50; ++i) comm.all_reduce(data);
                       try {
                         if (comm.rank() == 1)
                           comm.broadcast(data, 0);
                         else
                           comm.all_reduce(data);
                         comm.barrier();
                       } catch (const Error& error) {
                         told[static_cast<std::size_t>(comm.rank())] = error.what();
                       }
                     },
                     {.way = "tcp", .communicator = learning()});
  EXPECT_THAT(told, testing::Each(HasSubstr("RANVIER_LEARN=0 leaves it out")));
}

// A challenger is named, and what is named is refused where it has ranks forward for others.
TEST(LearningJob, ChallengersKeepToTheLinksOfAnyGrid) {
  constexpr Rank ranks = 24;
  constexpr auto network = "torus:4x3x2";
  Selection selection({.world = ranks,
                       .transport = "loopback",
                       .links = {},
                       .slice_bytes = 4096,
                       .topology = std::make_shared<const Topology>(make_topology(network, ranks))});
  ASSERT_TRUE(selection.keeps_to_links(Collective::all_reduce));
  CommunicatorOptions options = learning();
  options.topology = network;
  support::run_ranks(ranks,
                     [](Communicator& comm) {
                       std::vector<float> data(1000);
                       for (int i = 0; i < 90; ++i) comm.all_reduce(data);
                     },
                     {.communicator = options});
}

}  // namespace
}  // namespace ranvier::engine
