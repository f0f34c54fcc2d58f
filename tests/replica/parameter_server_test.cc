// Parameter servers with real messages: everybody's gradients arrive once, and nobody runs away or hangs.
#include "ranvier/parameter_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <thread>

#include "ranvier/async_group.h"
#include "ranvier/error.h"
#include "replica/server_requests.h"
#include "replica/team_pool.h"
#include "support/cluster.h"

namespace ranvier {
namespace {

using support::ClusterOptions;
using support::run_ranks;
using namespace std::chrono_literals;

TEST(ParameterServer, EveryGradientArrivesOnceOnEveryShard) {
  for (const Rank world : {1, 2, 3, 5})
    for (const auto& [size, ranges] : std::vector<std::pair<std::size_t, std::size_t>>{
             {2, 0}, {101, 0}, {101, 1}, {101, 23}, {101, 400}}) {  // also fewer parameters than ranks, and than ranges
      std::mutex mutex;
      std::multiset<std::uint64_t> samples;
      run_ranks(world,
                [&, size = size, ranges = ranges](Communicator& comm) {
                  std::vector<float> parameters(size);
                  std::iota(parameters.begin(), parameters.end(), 0.0F);
                  ParameterServer server(comm, {.damping = ServerRule::Damping::share, .ranges = ranges}, parameters,
                                         7);
                  for (const std::uint64_t stop : {20U, 50U}) {
                    for (;;) {
                      const auto start = server.begin(stop, 3);
                      if (start.count == 0) break;
                      {
                        const std::lock_guard lock(mutex);
                        for (std::uint64_t n = 0; n < start.count; ++n) samples.insert(start.first + n);
                      }
                      // Upwards by the number of its samples, in each place another multiple of it.
                      std::vector<float> gradient(size);
                      for (std::size_t i = 0; i < size; ++i)
                        gradient[i] = -static_cast<float>(start.count * (1 + i % 5));
                      server.exchange(gradient, {.rate = 2, .share = 0.5, .samples = start.count}, parameters);
                    }
                    comm.barrier();
                    server.pull(parameters);
                    for (std::size_t i = 0; i < size; ++i)
                      ASSERT_FLOAT_EQ(parameters[i], static_cast<float>(i + (stop - 7) * (1 + i % 5)))
                          << "after " << stop << " samples";
                    comm.barrier();
                  }
                  server.leave();
                },
                {.way = "shm"});
      std::set<std::uint64_t> expected;
      for (std::uint64_t sample = 7; sample < 50; ++sample) expected.insert(sample);
      EXPECT_EQ(std::set(samples.begin(), samples.end()), expected);
      EXPECT_EQ(samples.size(), expected.size()) << "a sample was given twice";
    }
}

// World 4, whose last 2 ranks own the parameters and never ask for samples.
TEST(ParameterServer, MayStandOnRanksOfItsOwn) {
  for (const auto& owners : {std::vector<Rank>{}, std::vector<Rank>{3, 2}}) {
    std::atomic<std::uint64_t> samples = 0;
    run_ranks(4,
              [&](Communicator& comm) {
                std::vector<float> parameters(1001, 1);
                const ServerRule rule{.bound = 1, .damping = ServerRule::Damping::share, .servers = 2};
                ParameterServer server(comm, rule, parameters, 0, {.owners = owners});
                while (comm.rank() < 2) {
                  const auto start = server.begin(30, 3);
                  if (start.count == 0) break;
                  samples += start.count;
                  const std::vector<float> gradient(1001, -static_cast<float>(start.count));
                  server.exchange(gradient, {.rate = 1, .samples = start.count}, parameters);
                }
                if (comm.rank() == 1) {
                  EXPECT_LT(10 * comm.bytes_sent_to(0), comm.bytes_sent_to(2)) << "gradients go to who owns";
                }
                comm.barrier();
                server.pull(parameters);
                EXPECT_EQ(parameters, std::vector<float>(1001, 31));
                comm.barrier();
                server.leave();
              },
              {.way = "shm"});
    EXPECT_EQ(samples, 30U);
  }
  EXPECT_THROW(workers_of({.servers = 4}, 4), Error);
}

TEST(ParameterServer, RangesAreDealtOutInTurn) {
  run_ranks(3,
            [&](Communicator& comm) {
              std::vector<float> parameters(1000, 1);
              ParameterServer server(comm, {.ranges = 8}, parameters, 0, {.owners = {2, 0, 1}});
              comm.barrier();
              const auto before = comm.bytes_sent_to(0);
              if (comm.rank() == 1) server.exchange(parameters, {}, parameters);
              if (comm.rank() == 1) {
                // Rank 0 owns the ranges 1, 4 and 7 of 125 values each.
                EXPECT_GE(comm.bytes_sent_to(0) - before, 3 * 125 * sizeof(float));
                EXPECT_LT(comm.bytes_sent_to(0) - before, 3 * 125 * sizeof(float) + 400);
              }
              comm.barrier();
              server.leave();
            },
            {.way = "shm"});
}

TEST(ParameterServer, OwnersThatCannotBeAreRefused) {
  run_ranks(2,
            [](Communicator& comm) {
              const std::vector<float> parameters(10);
              for (const auto& owners : {std::vector<Rank>{1, 1}, {0, 2}, {-1}})
                EXPECT_THROW(ParameterServer(comm, {}, parameters, 0, {.owners = owners}), Error);
            },
            {.way = "shm"});
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
                while (server.begin(30, 1).count > 0) {
                  for (const auto& other : complete) ASSERT_LE(complete[own].load(), other.load() + bound);
                  if (comm.rank() == 1) std::this_thread::sleep_for(2ms);
                  ++complete[own];  // before the servers hear of it
                  server.exchange(parameters, {}, parameters);
                }
                comm.barrier();
                server.leave();
              },
              {.way = "shm"});
    EXPECT_EQ(complete[0] + complete[1] + complete[2], 30U);
  }
}

// A step may compute for longer than an operation of it may take: of everybody, and of one whom others wait for.
TEST(ParameterServer, WaitsForStepsThatTakeLongerThanATimeout) {
  ClusterOptions options{.way = "shm"};
  options.communicator.timeout = 2s;
  for (const std::optional<std::uint64_t> bound : {std::optional<std::uint64_t>{}, std::optional<std::uint64_t>{0}})
    run_ranks(
        2,
        [&](Communicator& comm) {
          std::vector<float> parameters(8, 0);
          ParameterServer server(comm, {.bound = bound}, parameters, 0);
          for (int step = 0; server.begin(4, 1).count > 0; ++step) {
            if (step == 0 && (!bound || comm.rank() == 0)) std::this_thread::sleep_for(4500ms);
            server.exchange(parameters, {}, parameters);
          }
          comm.barrier({.timeout = 60s});
          server.leave();
        },
        options);
}

// What a server answers a push takes two seconds by its line: who only asks for samples meanwhile has them long before.
TEST(ParameterServer, AnAnswerOnItsWayHoldsNobodyUp) {
  using namespace replica::server_requests;
  constexpr std::size_t size = 1'000'000;
  ClusterOptions slow{.way = "tcp"};
  slow.communicator.link_bytes_per_second = 2e6;
  std::array<std::chrono::steady_clock::time_point, 3> had;
  run_ranks(
      3,
      [&](Communicator& comm) {
        std::vector<float> parameters(size, 0);
        ParameterServer server(comm, {}, parameters, 0, {.owners = {0}});
        std::vector<std::int32_t> go(1);
        if (comm.rank() == 1) {
          comm.recv(go, 2, 1);
          for (int times = 0; times < 5; ++times) EXPECT_GT(server.begin(100, 1).count, 0U);
        }
        if (comm.rank() == 2) {
          const Header push{.kind = Kind::push, .number = 1};
          std::vector<std::byte> request(sizeof push + size * sizeof(float));
          std::memcpy(request.data(), &push, sizeof push);
          comm.send({request.data(), request.size(), DType::u8}, 0, request_tag);
          comm.send(go, 1, 1);
          comm.recv(parameters, 0, values_tag);
        }
        had[static_cast<std::size_t>(comm.rank())] = std::chrono::steady_clock::now();
        comm.barrier();
        server.leave();
      },
      slow);
  EXPECT_LT(had[1], had[2]);
}

// Nobody knows when workers ask: threads that looked for it took the processors from those that compute.
TEST(ParameterServer, SleepsWhereNobodyAsks) {
  run_ranks(3,
            [](Communicator& comm) {
              std::vector<float> parameters(10, 0);
              ParameterServer server(comm, {}, parameters, 0);
              comm.barrier();
              const auto switches = [] {
                rusage usage{};
                getrusage(RUSAGE_SELF, &usage);
                return usage.ru_nvcsw + usage.ru_nivcsw;
              };
              const auto before = switches();
              std::this_thread::sleep_for(std::chrono::milliseconds(500));
              const auto more = switches() - before;
              EXPECT_LT(more, 1000) << "of the core";
              comm.barrier();
              server.leave();
            },
            {.way = "shm"});
}

// Of the averages of its gradients, and the same on all its members, so that it outlives the group.
void descend_with_momentum(Answer answer) {
  run_ranks(3,
            [answer](Communicator& comm) {
              std::vector<float> parameters(10, 0);
              std::vector<float> velocity(10, 0);
              ParameterServer server(comm, {.damping = ServerRule::Damping::share}, parameters, 0);
              float u = 0, x = 0;
              for (const auto& groups : {std::vector{0, 0, 0}, std::vector{7, 7, 7}}) {
                AsyncGroup group(comm, server, groups, {2, 1, 1}, {.momentum = {0.5, velocity}, .answer = answer});
                for (int step = 0; step < 4; ++step) {
                  const auto part = group.begin(1000);
                  ASSERT_TRUE(part.goes_on);
                  std::vector<float> gradient(10, static_cast<float>(comm.rank() + 1));
                  group.exchange(gradient, 0.25, parameters);
                  u = 0.5F * u + (2 * 1.0F + 2 + 3) / 4;
                  x -= 0.25F * u;
                  for (const float each : parameters) ASSERT_FLOAT_EQ(each, x);
                  for (const float each : velocity) ASSERT_FLOAT_EQ(each, u);
                }
                group.settle();
              }
              comm.barrier();
              server.leave();
            },
            {.way = "shm"});
}

TEST(AsyncGroup, HasAMomentumOfItsOwn) {
  for (const Answer answer : {Answer::now, Answer::next_step}) descend_with_momentum(answer);
}

// While its push is under way a worker goes on with its own step, and with the others' one step later.
TEST(AsyncGroup, GoesOnWithItsOwnStepBeforeItIsAnswered) {
  run_ranks(2,
            [](Communicator& comm) {
              std::vector<float> parameters(10, 0), gradient(10, comm.rank() == 0 ? 1.0F : 16.0F);
              ParameterServer server(comm, {.damping = ServerRule::Damping::share}, parameters, 0);
              AsyncGroup group(comm, server, {0, 1}, {1, 1}, {.answer = Answer::next_step});
              const auto step = [&](float expected) {
                ASSERT_TRUE(group.begin(100).goes_on);
                group.exchange(gradient, 2, parameters);
                EXPECT_EQ(parameters, std::vector<float>(10, expected));
              };
              if (comm.rank() == 1) {
                step(-16);
                group.settle();
              }
              comm.barrier();  // servers hold -16
              if (comm.rank() == 0) {
                step(-1);
                step(-18);
                step(-19);
              }
              comm.barrier();
              group.settle();
              comm.barrier();
              server.pull(parameters);
              EXPECT_EQ(parameters, std::vector<float>(10, -19));
              comm.barrier();
              server.leave();
            },
            {.way = "shm"});
}

TEST(AsyncGroup, AverageTheirGradientsBySamplesAndPushOnce) {
  const std::vector<std::pair<std::vector<int>, Answer>> cases{{{0, 0, 1, 1}, Answer::now},
                                                               {{0, 0, 1, 1}, Answer::next_step},
                                                               {{0, 1, 1, 1}, Answer::next_step},
                                                               {{0, 1, 2, 3}, Answer::now}};
  for (const auto& [groups, answer] : cases) {
    std::array<std::atomic<std::uint64_t>, 100> taken{};
    run_ranks(4,
              [&, &groups = groups, answer = answer](Communicator& comm) {
                const std::vector<std::size_t> shares{9, 4, 2, 1};
                std::vector<float> parameters(10, 0);
                ParameterServer server(comm, {.damping = ServerRule::Damping::share}, parameters, 0);
                const auto pool = std::make_shared<replica::TeamPool>(comm);
                AsyncGroup group(comm, server, groups, shares, {.pool = pool, .answer = answer});
                std::uint64_t steps = 0;
                for (;; ++steps) {
                  const auto part = group.begin(100);
                  if (!part.goes_on) break;
                  double mean = 0;  // of its samples, whose gradients are minus their numbers
                  for (std::uint64_t n = part.first; n < part.first + part.count; ++n) {
                    ++taken[n];
                    mean -= static_cast<double>(n) / static_cast<double>(part.count);
                  }
                  std::vector<float> gradient(10, static_cast<float>(mean));
                  group.exchange(gradient, 16, parameters);  // so that a sample's own weight is 1
                }
                comm.barrier();
                server.pull(parameters);
                for (const float each : parameters) EXPECT_NEAR(each, 99 * 100 / 2, 0.1);
                comm.barrier();  // nobody pulls any more, so that nothing is sent while it is counted
                // Of two, both send gradients in a step, and the first one parameters too.
                std::uint64_t sent = pool->bytes({0, 0, 0, 0}).first;
                for (Rank peer = 0; peer < 4; ++peer) sent -= comm.bytes_sent_to(peer);
                const auto own = static_cast<std::size_t>(comm.rank());
                const auto members = std::ranges::count(groups, groups[own]);
                const auto vectors = members == 2 ? steps * (own % 2 == 0 ? 2U : 1U) : 0;
                EXPECT_GE(sent, vectors * parameters.size() * sizeof(float));
                EXPECT_EQ(sent > 0, members > 1);
                server.leave();
              },
              {.way = "shm"});
    for (const auto& times : taken) EXPECT_EQ(times, 1U);
  }
}

// Beside workers at work, from threads of rank 0: what each has pushed counts once, and nobody's answers mix.
TEST(ParameterServer, GuestsPushAndPullBesideWorkers) {
  constexpr std::size_t size = 101;
  constexpr std::uint64_t pushes = 20;
  for (const Rank world : {1, 3})
    run_ranks(world,
              [&](Communicator& comm) {
                std::vector<float> parameters(size);
                ParameterServer server(comm, {.damping = ServerRule::Damping::share, .compensation = 1e-30}, parameters,
                                       0);
                std::vector<std::jthread> guests;
                const std::vector<float> up(size, -1);
                for (const Rank guest : {0, 5})
                  if (comm.rank() == 0)
                    guests.emplace_back([&server, &up, guest] {
                      std::vector<float> own(up.size());
                      for (std::uint64_t number = 1; number <= pushes; ++number)
                        for (int times = 0; times < 2; ++times)  // the second one is known already
                          server.exchange_for(guest, number, up, {.rate = 100, .share = 1}, own);
                      server.pull_for(guest, own);
                      for (const float each : own) EXPECT_GE(each, 100 * pushes);
                    });
                while (server.begin(50, 1).count > 0) server.exchange(up, {.rate = 1, .share = 1}, parameters);
                guests.clear();
                comm.barrier();
                server.pull(parameters);
                for (const float each : parameters) ASSERT_FLOAT_EQ(each, 50 + 2 * 100 * pushes);
                server.leave();
              },
              {.way = "shm"});
}

TEST(ParameterServer, AWorkerThatFailsTakesItsServersDownAndNobodyHangs) {
  EXPECT_THROW(run_ranks(3,
                         [](Communicator& comm) {
                           std::vector<float> parameters(8, 0);
                           ParameterServer server(comm, {.bound = 0}, parameters, 0);
                           while (server.begin(1000, 1).count > 0) {
                             if (comm.rank() == 2) throw std::runtime_error("no more memory");
                             server.exchange(parameters, {}, parameters);
                           }
                         },
                         {.way = "shm"}),
               std::runtime_error);
}

// As it stands before a gradient on the wire.
struct Request {
  std::uint64_t kind = 0;  // begin, push, pull, leave
  std::uint64_t number = 0;
  ParameterServer::Push push = {};
  std::uint64_t stop_at = 0, most = 0;
  Rank guest = -1;
};
constexpr std::uint64_t request_tag = 0x70732d31;

// Rank 2 runs wild. Of 12 parameters rank 0 and 1 own 4 each, or all 12 where rank 2 serves alone.
TEST(ParameterServer, ARequestThatCannotBeServedEndsTheJobOfAll) {
  struct Case {
    Request request;
    std::size_t bytes;  // behind the request; npos: it is cut short itself
    Rank to;
    std::size_t servers;
    std::string why;
    std::string compress = "none";
  };
  constexpr auto cut = std::string::npos;
  const std::vector<Case> cases{{{.kind = 1, .number = 1}, cut, 0, 0, "cut short"},
                                {{.kind = 7}, 0, 0, 0, "no request is of that kind"},
                                {{.kind = 1, .number = 1}, 0, 0, 0, "another size"},
                                {{.kind = 1, .number = 1}, 15, 0, 0, "another size"},
                                {{.kind = 2}, 16, 0, 0, "another size"},
                                {{.kind = 2, .guest = 64}, 0, 1, 0, "no such guest"},
                                {{.kind = 1, .number = 1, .guest = -2}, 16, 1, 0, "no such guest"},
                                {{.kind = 1, .number = 2}, 16, 1, 0, "comes before one that is missing"},
                                {{.kind = 0, .stop_at = 9, .most = 1}, 0, 1, 0, "given out by rank 0"},
                                {{.kind = 0, .stop_at = 9, .most = 1}, 0, 0, 1, "takes no steps"},
                                {{.kind = 1, .number = 1}, 0, 0, 1, "takes no steps"},
                                {{.kind = 1, .number = 1}, 3, 1, 0, "a coded message is cut short", "int8"},
                                {{.kind = 1, .number = 1}, 8, 1, 0, "0 bytes for 4 values", "int8"},
                                {{.kind = 2}, 16, 1, 0, "another size", "int8"}};
  for (const Case& each : cases) {
    std::atomic<int> told = 0;
    run_ranks(3,
              [&](Communicator& comm) {
                std::vector<float> parameters(12, 1);
                ParameterServer server(comm, {.bound = 0, .servers = each.servers}, parameters, 0,
                                       {.compress = each.compress});
                try {
                  if (comm.rank() == 2) {
                    std::vector<std::byte> message(sizeof(Request) + (each.bytes == cut ? 0 : each.bytes));
                    std::memcpy(message.data(), &each.request, sizeof(Request));
                    if (each.bytes == cut) message.resize(sizeof(Request) - 1);
                    comm.send({message.data(), message.size(), DType::u8}, each.to, request_tag);
                    std::uint8_t never = 0;
                    comm.recv({&never, 1, DType::u8}, each.to, 1);
                  }
                  while (server.begin(std::numeric_limits<std::uint64_t>::max(), 1).count > 0)
                    server.exchange(parameters, {}, parameters);
                } catch (const Error& error) {
                  EXPECT_THAT(error.what(), testing::HasSubstr("rank 2 asked it for what it cannot serve"));
                  EXPECT_THAT(error.what(), testing::HasSubstr(each.why));
                  ++told;
                }
              },
              {.way = "shm"});
    EXPECT_EQ(told, 3) << each.why;
  }
}

}  // namespace
}  // namespace ranvier
