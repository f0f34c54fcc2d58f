// Parameter servers with real messages: everybody's gradients arrive once, and nobody runs away or hangs.
#include "ranvier/parameter_server.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "ranvier/error.h"
#include "support/cluster.h"

namespace ranvier {
namespace {

using support::run_ranks;
using namespace std::chrono_literals;

TEST(ParameterServer, EveryGradientArrivesOnceOnEveryShard) {
  for (const Rank world : {1, 2, 3, 5})
    for (const std::size_t size : {2U, 101U}) {  // also fewer parameters than ranks
      std::mutex mutex;
      std::multiset<std::uint64_t> tickets;
      run_ranks(world,
                [&](Communicator& comm) {
                  std::vector<float> parameters(size);
                  std::iota(parameters.begin(), parameters.end(), 0.0F);
                  ParameterServer server(comm, {.by_staleness = false}, parameters, 7);
                  for (const std::uint64_t stop : {20U, 50U}) {
                    for (;;) {
                      const auto start = server.begin(stop);
                      if (!start.permitted) break;
                      {
                        const std::lock_guard lock(mutex);
                        tickets.insert(start.ticket);
                      }
                      // Of 1 / world of a step each, upwards.
                      server.exchange(std::vector<float>(size, -static_cast<float>(world)), 1, parameters);
                    }
                    comm.barrier();
                    server.pull(parameters);
                    for (std::size_t i = 0; i < size; ++i)
                      ASSERT_FLOAT_EQ(parameters[i], static_cast<float>(i + stop - 7)) << "after " << stop << " steps";
                    comm.barrier();
                  }
                  server.leave();
                },
                {.way = "shm"});
      std::set<std::uint64_t> expected;
      for (std::uint64_t ticket = 7; ticket < 50; ++ticket) expected.insert(ticket);
      EXPECT_EQ(std::set(tickets.begin(), tickets.end()), expected);
      EXPECT_EQ(tickets.size(), expected.size()) << "a ticket was given twice";
    }
}

TEST(ParameterServer, ASlowWorkerHoldsOthersNoLongerThanItsBoundSays) {
  for (const std::uint64_t bound : {0U, 2U}) {
    constexpr Rank world = 3;
    std::array<std::atomic<std::uint64_t>, world> complete{};
    run_ranks(world,
              [&](Communicator& comm) {
                std::vector<float> parameters(8, 0);
                ParameterServer server(comm, {.bound = bound}, parameters, 0);
                const auto own = static_cast<std::size_t>(comm.rank());
                while (server.begin(30).permitted) {
                  for (const auto& other : complete) ASSERT_LE(complete[own].load(), other.load() + bound);
                  if (comm.rank() == 1) std::this_thread::sleep_for(2ms);
                  ++complete[own];  // before the servers hear of it
                  server.exchange(parameters, 0, parameters);
                }
                comm.barrier();
                server.leave();
              },
              {.way = "shm"});
    EXPECT_EQ(complete[0] + complete[1] + complete[2], 30U);
  }
}

TEST(ParameterServer, AWorkerThatFailsTakesItsServersDownAndNobodyHangs) {
  EXPECT_THROW(run_ranks(3,
                         [](Communicator& comm) {
                           std::vector<float> parameters(8, 0);
                           ParameterServer server(comm, {.bound = 0}, parameters, 0);
                           while (server.begin(1000).permitted) {
                             if (comm.rank() == 2) throw std::runtime_error("no more memory");
                             server.exchange(parameters, 0, parameters);
                           }
                         },
                         {.way = "shm"}),
               std::runtime_error);
}

}  // namespace
}  // namespace ranvier
