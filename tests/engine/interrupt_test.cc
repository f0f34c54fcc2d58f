// A wait that is interrupted: CommunicatorOptions::check_interrupt.
#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "ranvier/transport.h"
#include "support/cluster.h"
#include "support/refusal.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

struct Interruption : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Of the rank that is this thread.
thread_local bool is_interrupted = false;

support::ClusterOptions checking(std::string_view way, std::function<void()> check) {
  support::ClusterOptions options{.way = way};
  options.communicator.check_interrupt = std::move(check);
  return options;
}

TEST(Interrupt, EndsAWaitInVainAndTheOthersHearOfWhat) {
  const auto check = [] {
    if (is_interrupted) throw Interruption("enough\nof this");
  };
  for (const char* const way : {"shm", "tcp"})
    for (const bool starts : {false, true}) {
      std::promise<void> over;
      support::run_ranks(
          2,
          [&](Communicator& comm) {
            std::vector<float> data(100'000, 1);
            const auto sum = [&] {
              if (starts)
                comm.start({.collective = Collective::all_reduce, .input = data, .output = data}).wait();
              else
                comm.all_reduce(data);
            };
            sum();
            if (comm.rank() == 0) {
              is_interrupted = true;
              EXPECT_THROW(sum(), Interruption) << way << ", starts: " << starts;
              data = {};  // which nothing works on any more
              over.set_value();
            } else {
              over.get_future().wait();
            }
            EXPECT_THAT(support::refusal(sum, ErrorKind::aborted),
                        AllOf(HasSubstr("rank 0 was interrupted: enough"), Not(HasSubstr("of this"))));
          },
          checking(way, check));
    }
}

TEST(Interrupt, IsLookedForWithoutHarmWhileAWaitGoesOn) {
  std::atomic<int> looks = 0;
  support::run_ranks(
      2,
      [&](Communicator& comm) {
        std::vector<float> data(3, 1);
        const int before = looks;
        while (comm.rank() == 1 && looks < before + 3) std::this_thread::sleep_for(1ms);
        comm.all_reduce(data);
        EXPECT_EQ(data, std::vector<float>(3, 2));
        comm.barrier();
      },
      checking("tcp", [&] { ++looks; }));
}

// Rank 0 of 2 whose peer says nothing. To ask takes a millisecond, as it does where many wait for the core.
class Silence final : public Transport {
 public:
  Rank rank() const override { return 0; }
  Rank world() const override { return 2; }
  TransportTraits traits() const override {
    return {.name = "silence",
            .slice_bytes = 4096,
            .buffered_bytes = 1 << 20,
            .ranks_per_core = 1,
            .polls_before_yield = 1'000'000,
            .polls_before_wait = 2'000'000};
  }
  std::size_t try_send(Rank, Lane, ConstBytes head, ConstBytes body) override { return head.size() + body.size(); }
  bool sent(Rank, Lane) override { return true; }
  ConstBytes try_recv(Rank, Lane, Bytes) override {
    std::this_thread::sleep_for(1ms);
    return {};
  }
  void release(Rank, Lane, std::size_t) override {}
  void wait(std::chrono::nanoseconds) override {}
  void interrupt() override {}
  void cancel() override {}
};

// Deadlines are looked at every 64 rounds, in which looks are due, too: what has ended there is called back for.
TEST(Interrupt, LeavesNoCallbackBehind) {
  const auto comm = Communicator::over(std::make_unique<Silence>(), {.check_interrupt = [] {}});
  std::vector<float> data(3, 1);
  std::promise<void> called;
  Work work = comm->start(
      {.collective = Collective::all_reduce, .input = data, .output = data, .timeout = std::chrono::milliseconds(100)});
  work.on_done([&] { called.set_value(); });
  support::refusal([&] { work.wait(); }, ErrorKind::timeout);
  EXPECT_EQ(called.get_future().wait_for(10s), std::future_status::ready);
}

}  // namespace
}  // namespace ranvier
