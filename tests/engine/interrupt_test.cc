// A wait that is interrupted: CommunicatorOptions::check_interrupt.
#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <thread>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/error.h"
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

}  // namespace
}  // namespace ranvier
