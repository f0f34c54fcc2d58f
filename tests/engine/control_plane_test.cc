// The control plane over real sockets: ranks as threads where they leave or abort, as processes where they die or stop.
#include "engine/control_plane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "engine/control_news.h"
#include "engine/control_watch.h"

namespace ranvier::engine {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto patience = 30s;

// What one rank was told.
class Diary {
 public:
  ControlEvents events() {
    return {.on_fault =
                [this](const Error& error) {
                  const std::lock_guard lock(mutex_);
                  faults_.push_back(error);
                  changed_.notify_all();
                },
            .on_departure =
                [this](Rank rank) {
                  const std::lock_guard lock(mutex_);
                  departures_.push_back(rank);
                  changed_.notify_all();
                }};
  }

  std::optional<Error> wait_for_fault() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, patience, [&] { return !faults_.empty(); });
    return faults_.empty() ? std::nullopt : std::optional(faults_.front());
  }
  std::vector<Rank> wait_for_departures(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, patience, [&] { return departures_.size() >= count; });
    return departures_;
  }
  std::size_t faults() {
    const std::lock_guard lock(mutex_);
    return faults_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Error> faults_;
  std::vector<Rank> departures_;
};

struct World {
  std::vector<Diary> diaries;
  std::vector<std::unique_ptr<ControlPlane>> planes;
};

World connected_world(Rank world, const ControlOptions& options = {}) {
  std::vector<std::unique_ptr<ControlEndpoint>> endpoints;
  std::vector<std::string> addresses;
  for (Rank rank = 0; rank < world; ++rank) {
    endpoints.push_back(control_endpoint({.rank = rank, .world = world}, options));
    addresses.push_back(endpoints.back()->address());
  }
  World result{std::vector<Diary>(static_cast<std::size_t>(world)), {}};
  result.planes.resize(endpoints.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < endpoints.size(); ++i)
    threads.emplace_back([&, i] {
      result.planes[i] = endpoints[i]->connect(addresses, Clock::now() + patience, result.diaries[i].events());
    });
  return result;
}

TEST(ControlPlane, AnAbortReachesEveryOtherRankOnceWordForWord) {
  for (const Rank count : {2, 3, 5, 8, 16}) {
    World world = connected_world(count);
    const Rank origin = count / 2;
    world.planes[static_cast<std::size_t>(origin)]->abort(Error(ErrorKind::mismatch, "rank 0 wants f32", 0));
    for (Rank rank = 0; rank < count; ++rank) {
      Diary& diary = world.diaries[static_cast<std::size_t>(rank)];
      if (rank == origin) continue;
      const auto fault = diary.wait_for_fault();
      ASSERT_TRUE(fault) << "rank " << rank << " of " << count;
      EXPECT_EQ(fault->kind(), ErrorKind::mismatch);
      EXPECT_EQ(fault->culprit(), 0);
      EXPECT_STREQ(fault->what(), "rank 0 wants f32");
    }
    world.planes.clear();
    for (Rank rank = 0; rank < count; ++rank)
      EXPECT_EQ(world.diaries[static_cast<std::size_t>(rank)].faults(), rank == origin ? 0U : 1U);
  }
}

TEST(ControlPlane, ADepartureIsToldToAllAndIsNoFault) {
  for (const Rank count : {2, 5, 16}) {
    World world = connected_world(count);
    world.planes[1].reset();
    for (std::size_t rank = 0; rank < world.planes.size(); ++rank)
      if (rank != 1) {
        EXPECT_THAT(world.diaries[rank].wait_for_departures(1), testing::ElementsAre(1));
      }
    world.planes.clear();
    for (Diary& diary : world.diaries) EXPECT_EQ(diary.faults(), 0U);
  }
}

}  // namespace
}  // namespace ranvier::engine
