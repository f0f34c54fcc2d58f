// Parameter servers and groups by a codec: what is held back arrives later, workers and servers agree on what a worker
// holds, and few bytes travel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "ranvier/async_group.h"
#include "ranvier/error.h"
#include "ranvier/parameter_server.h"
#include "replica/coded_message.h"
#include "replica/team_pool.h"
#include "support/cluster.h"
#include "support/normal_values.h"
#include "support/sanitized.h"

namespace ranvier {
namespace {

using replica::codec_of_messages;
using replica::CodedMessages;
using support::normal_values;
using support::run_ranks;
using ::testing::HasSubstr;

const std::vector<std::string> specs{
    "bf16",   "fp16",     "int8",    "int4",   "topk:0.1+int8",         "randk:0.1",          "sign",
    "qsgd:1", "terngrad", "natural", "eden:1", "hadamard+int4+huffman", "topk:0.02+int4+rans"};

double distance(std::span<const float> a, std::span<const float> b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) squares += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(squares);
}

// Also by codes that are right only in the mean, whose error is larger than what they stand for.
TEST(CodedMessages, EveryChangeBringsBothEndsNearerAndToTheSameBits) {
  for (const std::string& spec : specs)
    for (const std::size_t size : {1U, 7U, 1000U, 5000U}) {
      const CodedMessages coding(codec_of_messages(spec));
      const auto values = normal_values(size, 1);
      std::vector<float> told(size, 0), heard(size, 0);
      std::vector<std::byte> message(coding.most_bytes(size));
      const double before = distance(values, told);
      double last = before;
      for (std::uint64_t number = 0; number < 40; ++number) {
        const std::size_t length = coding.write_change(values, told, {.seed = number, .step = number}, message);
        ASSERT_LE(length, message.size());
        coding.read_change(ConstBytes(message).first(length), heard);
        ASSERT_EQ(told, heard) << spec;
        const double now = distance(values, told);
        ASSERT_LE(now, last * (1 + 1e-6) + 1e-6) << spec << ", " << size << " values, change " << number;
        last = now;
      }
      EXPECT_LT(last, 0.5 * before + 1e-6) << spec << ", " << size << " values";
    }
}

TEST(CodedMessages, WhatIsNotFiniteArrivesAsItIs) {
  const CodedMessages coding(codec_of_messages("int8"));
  std::vector<float> values{1, std::numeric_limits<float>::infinity(), -3}, told(3, 0), heard(3, 0);
  std::vector<std::byte> message(coding.most_bytes(3));
  std::size_t length = coding.write_change(values, told, {}, message);
  coding.read_change(ConstBytes(message).first(length), heard);
  EXPECT_EQ(heard, values);
  values[1] = 2;  // from infinity on
  length = coding.write_change(values, told, {}, message);
  coding.read_change(ConstBytes(message).first(length), heard);
  EXPECT_EQ(heard, values);
  EXPECT_EQ(coding.plain(), 2U);
  std::vector<float> residual(3, 0.5F);
  values[0] = std::numeric_limits<float>::quiet_NaN();
  length = coding.write(values, {.residual = residual}, {}, message);
  coding.read(ConstBytes(message).first(length), heard);
  EXPECT_TRUE(std::isnan(heard[0]));
  EXPECT_EQ(residual, std::vector<float>(3, 0.5F));
  EXPECT_THROW(coding.read(ConstBytes(message).first(3), heard), Error);
  EXPECT_THROW(coding.read(ConstBytes(message).first(length - 1), heard), Error);
}

// Everybody's gradients are the same in every step, so that the sum of all of them is known.
TEST(ParameterServer, WithACodecGradientsArriveButForWhatIsHeldBack) {
  constexpr std::size_t size = 301;
  for (const std::string spec : {"bf16", "int8", "topk:0.1+int8", "sign"})
    for (const Rank world : support::sanitized ? std::vector<Rank>{3} : std::vector<Rank>{1, 2, 3})
      for (const std::size_t ranges : {0U, 7U})
        run_ranks(world,
                  [&](Communicator& comm) {
                    const auto slope = normal_values(size, 3);
                    std::vector<float> parameters(size, 1), first(size, 1);
                    ParameterServer server(comm, {.damping = ServerRule::Damping::share, .ranges = ranges}, parameters,
                                           0, {.compress = spec});
                    constexpr std::uint64_t steps = 300;
                    while (server.begin(steps, 1).count > 0)
                      server.exchange(slope, {.rate = 0.01, .share = 1}, parameters);
                    comm.barrier();
                    server.pull(parameters);
                    std::vector<float> owed(size, 0);
                    if (!server.residual().empty()) std::ranges::copy(server.residual(), owed.begin());
                    comm.all_reduce(owed, {.op = ReduceOp::sum});
                    // What a rank owns itself, it pushes as it is: nothing of it is owed. bf16 keeps nothing of its
                    // roundings, by half of 2^-7 of a value each; how many steps others take is as it happens.
                    for (std::size_t i = 0; i < size; ++i)
                      ASSERT_NEAR(parameters[i], 1 - 0.01 * (steps * slope[i] - owed[i]),
                                  2e-3 + (spec == "bf16" ? 0.01 * steps * std::abs(slope[i]) / 256 : 0))
                          << spec << ", world " << world << ", value " << i;
                    comm.barrier();
                    server.leave();
                  },
                  {.way = "shm"});
}

// The server descends a parabola by gradients at what the worker holds, which is what the codes have told it.
TEST(ParameterServer, WithACodecWorkersFollowWhatTheServersHold) {
  constexpr std::size_t size = 1000;
  for (const std::string& spec : support::sanitized ? std::vector<std::string>{"int8", "topk:0.1+int8"} : specs)
    run_ranks(3,
              [&](Communicator& comm) {
                const auto target = normal_values(size, 5);
                std::vector<float> parameters(size, 0), gradient(size);
                ParameterServer server(comm, {.bound = 1, .damping = ServerRule::Damping::share}, parameters, 0,
                                       {.compress = spec});
                while (server.begin(1500, 1).count > 0) {
                  for (std::size_t i = 0; i < size; ++i) gradient[i] = parameters[i] - target[i];
                  server.exchange(gradient, {.rate = 0.01, .share = 1}, parameters);
                }
                comm.barrier();
                std::vector<float> exact = parameters;
                server.pull(exact);
                const std::vector<float> nothing(size, 0);
                EXPECT_LT(distance(exact, target), 0.2 * distance(nothing, target)) << spec;
                EXPECT_LT(distance(exact, parameters), 0.2 * distance(nothing, target)) << spec;
                EXPECT_EQ(server.plain_messages(), 0U);
                comm.barrier();
                server.leave();
              },
              {.way = "shm"});
}

// What all ranks have sent until a parabola's bottom is found; those of a group must hold the same bits.
std::uint64_t descend_by_groups(const std::vector<int>& groups, const std::string& compress,
                                Answer answer = Answer::now) {
  constexpr std::size_t size = 20'000;
  std::atomic<std::uint64_t> sent = 0;
  run_ranks(4,
            [&](Communicator& comm) {
              const auto target = normal_values(size, 7);
              std::vector<float> parameters(size, 0), gradient(size), all(4 * size);
              ParameterServer server(comm, {.damping = ServerRule::Damping::share}, parameters, 0,
                                     {.compress = compress});
              const auto pool = std::make_shared<replica::TeamPool>(comm);
              AsyncGroup group(comm, server, groups, {1, 1, 1, 1}, {.pool = pool, .answer = answer});
              while (group.begin(800).goes_on) {
                for (std::size_t i = 0; i < size; ++i) gradient[i] = parameters[i] - target[i];
                group.exchange(gradient, 0.05, parameters);
              }
              sent += pool->bytes({0, 0, 0, 0}).first;
              comm.all_gather(parameters, all);
              for (std::size_t peer = 0; peer < 4; ++peer)
                if (groups[peer] == groups[static_cast<std::size_t>(comm.rank())]) {
                  EXPECT_TRUE(std::ranges::equal(parameters, std::span(all).subspan(peer * size, size))) << compress;
                }
              comm.barrier();
              server.pull(parameters);
              EXPECT_LT(distance(parameters, target), 0.05 * distance(std::vector<float>(size, 0), target)) << compress;
              comm.barrier();
              server.leave();
            },
            {.way = "shm"});
  return sent;
}

TEST(AsyncGroup, ByACodecMembersHoldTheSameAndFewBytesTravel) {
  for (const auto& groups : {std::vector{0, 1, 1, 1}, std::vector{0, 0, 1, 1}, std::vector{0, 0, 0, 0}}) {
    if (support::sanitized && groups[1] == 0) continue;
    EXPECT_LT(3 * static_cast<double>(descend_by_groups(groups, "int8")),
              static_cast<double>(descend_by_groups(groups, "none", Answer::next_step)));
  }
  EXPECT_LT(3 * static_cast<double>(descend_by_groups({0, 1, 1, 1}, "int8", Answer::next_step)),
            static_cast<double>(descend_by_groups({0, 1, 1, 1}, "none")));
}

// Parameters that were 0 have moved against so many times the gradient, but for a tenth of it in all.
void expect_all_arrived(std::span<const float> parameters, std::span<const float> gradient, double times) {
  double apart = 0, all = 0;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    apart += std::abs(parameters[i] + times * gradient[i]);
    all += std::abs(times * gradient[i]);
  }
  EXPECT_LT(apart, 0.1 * all);
}

// What the codec left out of one gradient is paid by the groups that come then, with gradients of nothing: by other
// members, and by a rank alone.
TEST(AsyncGroup, WhatIsOwedToMembersOutlivesTheGroup) {
  constexpr std::size_t size = 2000;
  using Groups = std::vector<int>;
  using Shares = std::vector<std::size_t>;
  for (const auto& each : {std::pair(Groups{0, 0, 1}, Shares{1, 1, 1}), std::pair(Groups{0, 1, 1}, Shares{1, 1, 1}),
                           std::pair(Groups{0, 1, 2}, Shares{1, 1, 1}), std::pair(Groups{0, 0, 1}, Shares{7, 1, 4}),
                           std::pair(Groups{0, 1, 1}, Shares{7, 1, 4}), std::pair(Groups{0, 1, 2}, Shares{7, 1, 4})}) {
    const Groups& then = each.first;
    const Shares& shares = each.second;
    run_ranks(3,
              [&](Communicator& comm) {
                const auto gradient = normal_values(size, 7);
                std::vector<float> parameters(size, 0), memory = gradient;
                ParameterServer server(comm, {.damping = ServerRule::Damping::share}, parameters, 0,
                                       {.compress = "topk:0.02"});
                std::vector<float> owed;
                {
                  AsyncGroup group(comm, server, {0, 0, 1}, shares);
                  group.begin(1'000'000);
                  group.exchange(memory, 1, parameters);
                  owed = group.take_owed(memory);
                  EXPECT_EQ(owed.size(), size);
                }
                comm.barrier();
                AsyncGroup group(comm, server, then, shares);
                group.owe(std::move(owed));
                for (int step = 0; step < 200; ++step) {
                  group.begin(1'000'000);
                  std::ranges::fill(memory, 0.0F);
                  group.exchange(memory, 1, parameters);
                }
                comm.barrier();
                server.pull(parameters);
                expect_all_arrived(parameters, gradient, 1);  // each rank's is its share of a step of everybody's
                comm.barrier();
                server.leave();
              },
              {.way = "shm"});
  }
}

TEST(ParameterServer, ACodecThatTakesAllRanksAtOnceIsRefused) {
  run_ranks(2, [](Communicator& comm) {
    const std::vector<float> parameters(8, 0);
    for (const std::string spec : {"powersgd:2", "thc:4", "switchml", "demo", "dgc:0.1", "delta+topk:0.1", "strong"})
      try {
        ParameterServer server(comm, {}, parameters, 0, {.compress = spec});
        ADD_FAILURE() << spec << " is taken";
      } catch (const Error& refused) {
        EXPECT_EQ(refused.kind(), ErrorKind::usage);
        EXPECT_THAT(refused.what(), HasSubstr("'" + spec + "'"));
      }
    try {
      ParameterServer server(comm, {}, parameters, 0, {.compress = comm.rank() == 0 ? "int8" : "int4"});
      ADD_FAILURE() << "two codecs are taken";
    } catch (const Error& mismatch) {
      EXPECT_EQ(mismatch.kind(), ErrorKind::mismatch);
    }
  });
}

// Each gradient is in all pushes to come, by momentum; what codecs have left out of these is paid without it.
TEST(AsyncGroup, WhatIsOwedToMembersIsPaidOnceWhateverTheirMomentum) {
  constexpr std::size_t size = 500;
  constexpr double factor = 0.9;
  for (const Answer answer : {Answer::now, Answer::next_step})
    for (const std::vector<int>& groups : {std::vector{0, 0, 1}, std::vector{0, 1, 2}})
      run_ranks(3,
                [&](Communicator& comm) {
                  const auto gradient = normal_values(size, 7);
                  std::vector<float> parameters(size, 0), memory = gradient, velocity(size, 0), owed;
                  ParameterServer server(comm, {.damping = ServerRule::Damping::share}, parameters, 0,
                                         {.compress = "topk:0.02"});
                  const auto descend = [&](AsyncGroup& group, int steps) {
                    for (int step = 0; step < steps; ++step) {
                      group.begin(1'000'000);
                      group.exchange(memory, 1, parameters);
                      std::ranges::fill(memory, 0.0F);
                    }
                    group.settle();
                  };
                  const AsyncGroupOptions options{.momentum = {factor, velocity}, .answer = answer};
                  {
                    AsyncGroup group(comm, server, groups, {1, 1, 1}, options);
                    descend(group, 20);
                    owed = group.take_owed(memory);
                    std::ranges::fill(memory, 0.0F);
                  }
                  comm.barrier();
                  AsyncGroup group(comm, server, groups, {1, 1, 1}, options);
                  group.owe(std::move(owed));
                  descend(group, 500);
                  comm.barrier();
                  server.pull(parameters);
                  expect_all_arrived(parameters, gradient, 1 / (1 - factor));
                  comm.barrier();
                  server.leave();
                },
                {.way = "shm"});
}

// As the last step of an epoch is short, behind which checkpoints are written and groups change: of one sample, which
// is one member's.
TEST(AsyncGroup, WhatIsOwedIsNotOfTheLastStepsSamples) {
  constexpr std::size_t size = 2000;
  run_ranks(2,
            [&](Communicator& comm) {
              const auto gradient = normal_values(size, 7);
              std::vector<float> parameters(size, 0), memory = gradient, owed;
              ParameterServer server(comm, {.damping = ServerRule::Damping::share}, parameters, 0,
                                     {.compress = "topk:0.02"});
              {
                AsyncGroup group(comm, server, {0, 0}, {16, 16});
                group.begin(33);
                group.exchange(memory, 1, parameters);
                std::ranges::fill(memory, 0.0F);
                EXPECT_EQ(group.begin(33).count, comm.rank() == 0 ? 1U : 0U);
                group.exchange(memory, 1, parameters);
                owed = group.take_owed(memory);
              }
              comm.barrier();
              AsyncGroup group(comm, server, {0, 0}, {16, 16});
              group.owe(std::move(owed));
              for (int step = 0; step < 200; ++step) {
                std::ranges::fill(memory, 0.0F);
                group.begin(1'000'000);
                group.exchange(memory, 1, parameters);
              }
              comm.barrier();
              server.pull(parameters);
              expect_all_arrived(parameters, gradient, 1);
              comm.barrier();
              server.leave();
            },
            {.way = "shm"});
}

}  // namespace
}  // namespace ranvier
