// Who goes first: operations of different priorities under way together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/simulated.h"
#include "support/cluster.h"
#include "support/sanitized.h"
#include "support/transport_over.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using testing::Each;
using testing::ElementsAre;

constexpr std::size_t slice = 4096;

std::unique_ptr<Communicator> communicator(std::unique_ptr<Transport> transport) {
  CommunicatorOptions options;
  options.background_progress = false;  // what moves is moved by those who wait
  options.timeout = 60s;
  options.algorithm = "ring";
  return Communicator::over(std::move(transport), options);
}

void run_simulated(SimulatedWorld& world, const std::function<void(Communicator&)>& body) {
  world.run([&](std::unique_ptr<Transport> transport) { body(*communicator(std::move(transport))); });
}

Request request_of(std::vector<float>& data, int priority) {
  return {.collective = Collective::all_reduce, .input = data, .output = data, .priority = priority};
}

TEST(Priority, lets_one_pass_another_between_its_slices) {
  for (const auto& [running, later] : std::vector<std::pair<int, int>>{{0, 1}, {1, 2}, {1, 7}, {2, 3}})
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(testing::Message() << later << " behind " << running << ", seed " << seed);
      SimulatedWorld world(3, {.seed = seed, .slice_bytes = slice});
      run_simulated(world, [&, first = running, second = later](Communicator& comm) {
        std::vector<float> large(slice * 10, 1), small(10, 1);
        const Work slow = comm.start(request_of(large, first));
        // The large one moves meanwhile.
        for (int i = 0; i < 3; ++i) comm.barrier({.priority = first == 1 ? 3 : 1});
        const std::uint64_t messages = world.messages();
        EXPECT_GT(messages, 20u) << "it has begun";
        EXPECT_FALSE(slow.done());
        comm.start(request_of(small, second)).wait();
        EXPECT_FALSE(slow.done()) << world.messages() - messages << " messages for a small operation";
        EXPECT_THAT(small, Each(3));
        Work(slow).wait();
        EXPECT_THAT(large, Each(3));
      });
    }
}

// A line that carries one slice at a time, whatever its lane: the next one may be sent when that has gone.
class FullLine final : public support::TransportOver {
 public:
  FullLine(std::unique_ptr<Transport> inner, const SimulatedWorld& world)
      : TransportOver(std::move(inner)), world_(world) {}
  std::size_t try_send(Rank to, Lane lane, ConstBytes head, ConstBytes body) override {
    if (world_.now() < free_at_) return 0;
    const std::size_t accepted = TransportOver::try_send(to, lane, head, body);
    if (accepted > 0) free_at_ = world_.now() + 20us;
    return accepted;
  }
  void wait(std::chrono::nanoseconds limit) override {
    const auto now = world_.now();
    TransportOver::wait(now < free_at_ ? std::min(limit, free_at_ - now) : limit);
  }

 private:
  const SimulatedWorld& world_;
  std::chrono::nanoseconds free_at_{};
};

TEST(Priority, is_the_order_in_which_operations_end_that_share_a_line) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SimulatedWorld world(3, {.seed = seed, .most_delay = 2us, .slice_bytes = slice, .buffered_slices = 8});
    world.run([&](std::unique_ptr<Transport> transport) {
      const auto comm = communicator(std::make_unique<FullLine>(std::move(transport), world));
      std::vector<std::vector<float>> data(4, std::vector<float>(slice * 8, 1));
      std::vector<int> ended;
      std::vector<Work> works;
      for (int priority = 0; priority < 4; ++priority) {
        works.push_back(comm->start(request_of(data[static_cast<std::size_t>(priority)], priority)));
        works.back().on_done([&ended, priority] { ended.push_back(priority); });
      }
      for (Work& work : works) work.wait();
      EXPECT_THAT(ended, ElementsAre(3, 2, 1, 0));
      EXPECT_THAT(data, Each(Each(3)));
    });
  }
}

// A blocking call on it spins for as long as it takes, as one does whose other ranks keep it busy all the time.
class Patient final : public support::TransportOver {
 public:
  using TransportOver::TransportOver;
  TransportTraits traits() const override {
    TransportTraits traits = TransportOver::traits();
    traits.polls_before_yield = traits.polls_before_wait = std::numeric_limits<int>::max() / 2;
    return traits;
  }
};

TEST(Priority, of_a_started_one_counts_while_a_blocking_call_moves) {
  auto world = loopback_world(2);
  std::vector<std::jthread> ranks;
  for (auto& transport : world)
    ranks.emplace_back([transport = std::make_unique<Patient>(std::move(transport))]() mutable {
      const auto comm = communicator(std::move(transport));
      std::vector<float> large(4'000'000, 1), small(10, 1);  // more than a hundred slices, and one
      Work urgent = comm->start(request_of(small, 1));
      comm->all_reduce(large);
      EXPECT_TRUE(urgent.done()) << "it was left alone until the blocking call was over";
      urgent.wait();
      EXPECT_THAT(small, Each(2));
      EXPECT_EQ(large.back(), 2);
    });
}

// Nobody waits for the ordinary one: with whoever waits for the urgent ones it moves no further than they take.
class PriorityOver : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(RealTransports, PriorityOver, testing::Values("shm", "tcp"));

TEST_P(PriorityOver, an_urgent_one_ends_before_what_was_started_first) {
  auto options = support::ClusterOptions::patient();
  options.background_progress = false;
  options.algorithm = "ring";
  support::run_ranks(3,
                     [](Communicator& comm) {
                       std::vector<float> large(support::sanitized ? 4'000'000 : 16'000'000, 1), small(10, 1);
                       Work slow = comm.start(request_of(large, 0));
                       comm.start(request_of(small, 1)).wait();
                       EXPECT_FALSE(slow.done()) << "all of it has gone in front of 40 bytes";
                       EXPECT_THAT(small, Each(3));
                       slow.wait();
                       EXPECT_EQ(std::ranges::count(large, 3.0F), std::ssize(large));
                     },
                     {.way = GetParam(), .communicator = options});
}

}  // namespace
}  // namespace ranvier
