// The control plane over real sockets, each a stream or a call of gRPC; its ranks are threads of this process.
#include "engine/control_plane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <thread>

#include "engine/control_diary.h"
#include "engine/control_news.h"
#include "engine/control_watch.h"
#include "support/no_more_threads.h"
#include "support/on_threads.h"
#include "support/refusal.h"
#include "transport/tcp_meeting.h"

namespace ranvier::engine {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using testing::HasSubstr;

class ControlPlaneOver : public testing::TestWithParam<bool> {};  // calls
INSTANTIATE_TEST_SUITE_P(Connections, ControlPlaneOver, testing::Bool(),
                         [](const auto& tested) { return tested.param ? "calls" : "streams"; });

struct World {
  std::vector<Diary> diaries;
  std::vector<std::unique_ptr<ControlPlane>> planes;

  // Every rank's but `origin`'s, which must not hear of what it said itself.
  void expect_fault(Rank origin, const Error& expected) {
    for (std::size_t rank = 0; rank < planes.size(); ++rank) {
      if (rank == static_cast<std::size_t>(origin)) continue;
      const auto fault = diaries[rank].wait_for_fault();
      ASSERT_TRUE(fault) << "rank " << rank << " of " << planes.size();
      EXPECT_EQ(fault->kind(), expected.kind());
      EXPECT_EQ(fault->culprit(), expected.culprit());
      EXPECT_STREQ(fault->what(), expected.what());
    }
    planes.clear();
    for (std::size_t rank = 0; rank < diaries.size(); ++rank)
      EXPECT_EQ(diaries[rank].faults(), rank == static_cast<std::size_t>(origin) ? 0U : 1U);
  }
};

struct Meeting {
  explicit Meeting(Rank world, ControlOptions options = {}) {
    options.calls = ControlPlaneOver::GetParam();
    for (Rank rank = 0; rank < world; ++rank) {
      endpoints.push_back(control_endpoint({.rank = rank, .world = world}, options));
      addresses.push_back(endpoints.back()->address());
    }
  }
  std::vector<std::unique_ptr<ControlEndpoint>> endpoints;
  std::vector<std::string> addresses;
};

World connected_world(Rank world, const ControlOptions& options = {}) {
  const Meeting meeting(world, options);
  World result{std::vector<Diary>(static_cast<std::size_t>(world)), {}};
  result.planes.resize(meeting.endpoints.size());
  support::on_threads(world, [&](Rank rank) {
    const auto i = static_cast<std::size_t>(rank);
    result.planes[i] =
        meeting.endpoints[i]->connect(meeting.addresses, Clock::now() + Diary::patience, result.diaries[i].events());
  });
  return result;
}

TEST_P(ControlPlaneOver, AnAbortReachesEveryOtherRankOnceWordForWord) {
  for (const Rank count : {2, 3, 5, 8, 16}) {
    World world = connected_world(count);
    const Error why(ErrorKind::mismatch, "rank 0 wants f32", 0);
    world.planes[static_cast<std::size_t>(count / 2)]->abort(why);
    world.expect_fault(count / 2, why);
  }
}

TEST_P(ControlPlaneOver, ALongReasonIsCutToWhatAFrameHolds) {
  World world = connected_world(2);
  world.planes[0]->abort(Error(ErrorKind::aborted, std::string(5000, 'x')));
  world.expect_fault(0, Error(ErrorKind::aborted, std::string(most_news_text, 'x')));
}

TEST_P(ControlPlaneOver, ARankThatAbortsAndLeavesAtOnceIsStillHeard) {
  for (int i = 0; i < 20; ++i) {
    World world = connected_world(4);
    const Error why(ErrorKind::timeout, "rank 3 took too long", 3);
    world.planes[1]->abort(why);
    world.planes[1].reset();
    world.expect_fault(1, why);
    for (const Rank rank : {0, 2, 3}) EXPECT_FALSE(world.diaries[static_cast<std::size_t>(rank)].left_first());
  }
}

TEST_P(ControlPlaneOver, OfManyAbortsEachRankHearsOne) {
  World world = connected_world(8);
  std::vector<std::jthread> threads;
  for (const std::size_t rank : {0U, 3U, 6U})
    threads.emplace_back(
        [&, rank] { world.planes[rank]->abort(Error(ErrorKind::aborted, "enough", static_cast<Rank>(rank))); });
  threads.clear();
  for (const std::size_t rank : {1U, 2U, 4U, 5U, 7U})
    EXPECT_THAT(world.diaries[rank].wait_for_fault()->culprit(), testing::AnyOf(0, 3, 6));
  world.planes.clear();
  for (Diary& diary : world.diaries) EXPECT_LE(diary.faults(), 1U);
}

TEST_P(ControlPlaneOver, ADepartureIsToldToAllAndIsNoFault) {
  for (const Rank count : {2, 5, 16}) {
    World world = connected_world(count);
    world.planes[1].reset();
    for (std::size_t rank = 0; rank < world.planes.size(); ++rank) {
      if (rank != 1) {
        EXPECT_THAT(world.diaries[rank].wait_for_departures(1), testing::ElementsAre(1));
      }
    }
    world.planes.clear();
    for (Diary& diary : world.diaries) EXPECT_EQ(diary.faults(), 0U);
  }
}

TEST_P(ControlPlaneOver, RanksThatAllLeaveAtOnceBlameNobody) {
  for (int i = 0; i < 10; ++i) {
    World world = connected_world(8);
    std::vector<std::jthread> threads;
    for (auto& plane : world.planes) threads.emplace_back([&plane] { plane.reset(); });
    threads.clear();
    for (Diary& diary : world.diaries) EXPECT_EQ(diary.faults(), 0U);
  }
}

// Whoever would dial it sees at once that nobody listens; whom it would dial looks; the others are told by those.
TEST_P(ControlPlaneOver, ARankThatDiesBeforeItIsConnectedIsNamedByAll) {
  for (const bool encrypted : {false, true})
    for (const Rank dead : {0, 3, 7}) {
      Meeting meeting(8, {.security = {.encrypt_everywhere = encrypted}});
      meeting.endpoints[static_cast<std::size_t>(dead)].reset();
      std::vector<std::optional<Error>> heard(8);
      std::vector<Diary> diaries(8);
      support::on_threads(8, [&](Rank rank) {
        const auto index = static_cast<std::size_t>(rank);
        if (rank == dead) return;
        try {
          const auto plane = meeting.endpoints[index]->connect(meeting.addresses, Clock::now() + Diary::patience,
                                                               diaries[index].events());
          heard[index] = diaries[index].wait_for_fault();
        } catch (const Error& error) {
          heard[index] = error;
        }
      });
      for (Rank rank = 0; rank < 8; ++rank) {
        if (rank == dead) continue;
        const auto& error = heard[static_cast<std::size_t>(rank)];
        ASSERT_TRUE(error) << "rank " << rank;
        EXPECT_EQ(error->kind(), ErrorKind::peer_lost) << error->what();
        EXPECT_EQ(error->culprit(), dead) << error->what();
        EXPECT_THAT(error->what(), HasSubstr("died or gave up before it was connected"));
      }
    }
}

TEST_P(ControlPlaneOver, ARankOfAGroupThatDiesBeforeItIsConnectedHasItsNumberInTheWorld) {
  Meeting meeting(2, {.names = {.rank = RankNames({4, 6})}});
  meeting.endpoints[1].reset();
  Diary diary;
  try {
    meeting.endpoints[0]->connect(meeting.addresses, Clock::now() + Diary::patience, diary.events());
    FAIL() << "it was connected";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::StartsWith("rank 6 (1 of its group) died or gave up"));
  }
}

TEST_P(ControlPlaneOver, AWorldOfOneHasNothingToDo) {
  World world = connected_world(1);
  world.planes[0]->abort(Error(ErrorKind::aborted, "nobody listens"));
  world.planes.clear();
  EXPECT_EQ(world.diaries[0].faults(), 0U);
}

// An engine that has closed meanwhile has told nobody of it.
TEST_P(ControlPlaneOver, AMismatchThatCameBeforeItLeavesIsGivenToWhoLeaves) {
  World world = connected_world(2);
  for (Rank rank = 0; rank < 2; ++rank) {
    const auto calls = std::make_shared<CallHistory>(2);
    calls->add(CallStamp::of({.collective = Collective::broadcast, .root_or_dims = static_cast<std::uint32_t>(rank)}));
    world.planes[static_cast<std::size_t>(rank)]->follow(calls);
  }
  for (Diary& diary : world.diaries) ASSERT_TRUE(diary.wait_for_fault());
  for (const auto& plane : world.planes) {
    const auto mismatch = plane->leave();
    ASSERT_TRUE(mismatch);
    EXPECT_EQ(mismatch->kind(), ErrorKind::mismatch);
    EXPECT_THAT(mismatch->what(), HasSubstr("broadcast #0"));
  }
}

TEST_P(ControlPlaneOver, ANeighbourThatTalksNonsenseIsGivenUp) {
  const auto endpoint = control_endpoint({.rank = 0, .world = 2}, {.calls = GetParam()});
  transport::TcpMeeting stranger({.rank = 1, .world = 2},
                                 {.purpose = transport::TcpPurpose::control, .calls = GetParam()});
  const std::vector<std::string> addresses{endpoint->address(), stranger.address()};
  std::vector<transport::Channel> channels;
  std::jthread other([&] { channels = stranger.connect(addresses, {{0, 0}}, Clock::now() + Diary::patience); });
  Diary diary;
  const auto plane = endpoint->connect(addresses, Clock::now() + Diary::patience, diary.events());
  other.join();
  const std::string nonsense(3000, '\xee');
  channels[0].send({}, std::as_bytes(std::span(nonsense)));
  const auto fault = diary.wait_for_fault();
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->kind(), ErrorKind::peer_lost);
  EXPECT_EQ(fault->culprit(), 1);
  EXPECT_THAT(fault->what(), HasSubstr("rank 1 sent garbage"));
}

TEST_P(ControlPlaneOver, ARankWithoutAThreadForItSaysSoAndTellsItsNeighbours) {
  const auto endpoint = control_endpoint({.rank = 0, .world = 2}, {.calls = GetParam()});
  transport::TcpMeeting neighbour({.rank = 1, .world = 2},
                                  {.purpose = transport::TcpPurpose::control, .calls = GetParam()});
  const std::vector<std::string> addresses{endpoint->address(), neighbour.address()};
  std::optional<News> told;
  std::jthread other([&] {
    std::vector<transport::Channel> channels = neighbour.connect(addresses, {{0, 0}}, Clock::now() + Diary::patience);
    NewsReader reader(2);
    for (const auto end = Clock::now() + Diary::patience; Clock::now() < end; std::this_thread::sleep_for(1ms)) {
      const ssize_t got = channels[0].recv(reader.space());
      if (got == 0) return;
      if (got > 0) reader.filled(static_cast<std::size_t>(got));
      while (const auto news = reader.next())
        if (news->type == NewsType::fault) told = news;
    }
  });
  sigset_t before, after;
  pthread_sigmask(SIG_BLOCK, nullptr, &before);
  Diary diary;
  const support::NoMoreThreads none;
  const std::string refused = support::refusal(
      [&] { endpoint->connect(addresses, Clock::now() + Diary::patience, diary.events()); }, ErrorKind::config);
  EXPECT_THAT(refused, HasSubstr("rank 0 cannot begin: no thread could be started for heartbeats: Resource temp"));
  other.join();
  ASSERT_TRUE(told);
  EXPECT_STREQ(told->error().what(), refused.c_str());
  EXPECT_EQ(told->culprit, 0);
  pthread_sigmask(SIG_BLOCK, nullptr, &after);
  EXPECT_EQ(sigismember(&after, SIGTERM), sigismember(&before, SIGTERM)) << "the caller's signals are blocked";
}

TEST_P(ControlPlaneOver, ARankThatDoesNotComeIsNamed) {
  const auto endpoint = control_endpoint({.rank = 0, .world = 3}, {.calls = GetParam()});
  try {
    endpoint->connect(std::vector<std::string>(3, endpoint->address()), Clock::now() + 50ms, {});
    FAIL() << "connected to nobody";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unreachable);
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("rank 1 ("), HasSubstr("rank 2 (")));
  }
}

TEST(ControlPlane, ImpossibleLimitsAreRefused) {
  EXPECT_THROW(control_endpoint({.rank = 0, .world = 2}, {.suspect_after = 0ms, .dead_after = 1s}), Error);
  EXPECT_THROW(control_endpoint({.rank = 0, .world = 2}, {.suspect_after = 2s, .dead_after = 1s}), Error);
}

}  // namespace
}  // namespace ranvier::engine
