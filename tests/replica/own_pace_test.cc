// Replicas at their own pace whose programs load their own samples, with real messages.
#include "ranvier/own_pace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <string>
#include <thread>

#include "ranvier/error.h"
#include "support/cluster.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using support::run_ranks;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t parameters = 1003;
constexpr float rate = 0.25F;

std::unique_ptr<SyncPolicy> policy(const char* spec) { return make_sync_policy(spec, {}); }

// As an optimizer does it: sgd by a gradient that is this everywhere.
void descend(std::vector<float>& x, float gradient) {
  for (float& each : x) each -= rate * gradient;
}

TEST(OwnPace, EveryUpdateIsAppliedOnceByItsShareOfSamplesHoweverManyStepsEachRankTakes) {
  for (const Rank world : {1, 2, 3, 5})
    for (const char* spec : {"async:staleness=0", "async:staleness=0,ranges=7"})
      run_ranks(world, [&](Communicator& comm) {
        const auto r = static_cast<float>(comm.rank());
        std::vector<float> x(parameters, 8);
        OwnPace pace(comm, *policy(spec), x, {.samples = 1.0 + comm.rank()});
        double expected = 8;
        const double all_samples = world * (world + 1) / 2.0;
        for (int meeting = 1; meeting <= 2; ++meeting) {
          for (int step = 0; step < 4 * (world - comm.rank()) * meeting; ++step) {
            descend(x, 1 + r);
            pace.step({.rate = rate, .samples = 1.0 + comm.rank()}, x);
          }
          pace.meet(x, meeting < 2 ? OwnPace::Then::goes_on : OwnPace::Then::ends);
          for (Rank rank = 0; rank < world; ++rank)
            expected -= 4.0 * (world - rank) * meeting * rate * (1 + rank) * (1 + rank) / all_samples;
          for (const float each : x) ASSERT_NEAR(each, expected, 1e-4) << spec << ", world " << world;
        }
        EXPECT_EQ(pace.exchanges(), world > 1 ? static_cast<std::uint64_t>(12 * (world - comm.rank())) : 0);
      });
}

// Of u = m u + g each pushes g + m u where others push once meanwhile, and what it came with as it is, since nobody has
// looked ahead by it; one rank alone has nobody to look ahead to.
TEST(OwnPace, AnOptimizersMomentumLooksAheadToWhatOthersPush) {
  static constexpr float momentum = 0.5F;
  constexpr int steps = 6;
  for (const auto& [world, came_with] : {std::pair<Rank, float>(1, 3), {2, 3}, {2, 0}})
    run_ranks(world, [&, world = world, came_with = came_with](Communicator& comm) {
      std::vector<float> x(parameters, 8);
      OwnPace pace(comm, *policy("async:staleness=0"), x, {.momentum = momentum, .has_velocity = came_with > 0});
      const auto pushes = [world, came_with](float gradient) {
        float u = came_with, sum = 0;
        for (int step = 0; step < steps; ++step) {
          u = momentum * u + gradient;
          sum += world == 1 || (step == 0 && came_with > 0) ? u : gradient + momentum * u;
        }
        return sum / static_cast<float>(world);
      };
      float u = came_with;  // of a checkpoint, say
      for (int step = 0; step < steps; ++step) {
        u = momentum * u + static_cast<float>(1 + comm.rank());
        descend(x, u);
        pace.step({.rate = rate}, x);
      }
      pace.meet(x, OwnPace::Then::ends);
      const float all = pushes(1) + (world > 1 ? pushes(2) : 0);
      for (const float each : x) ASSERT_NEAR(each, 8 - rate * all, 1e-5) << "world " << world << ", " << came_with;
    });
}

TEST(OwnPace, WhatAProgramHoldsInAnotherTypeCountsFromThere) {
  run_ranks(2, [&](Communicator& comm) {
    std::vector<float> x(parameters, 1.0F / 3);
    OwnPace pace(comm, *policy("async:staleness=0"), x);
    for (int step = 0; step < 3; ++step) {
      std::vector<float> coarse(parameters);
      for (std::size_t i = 0; i < parameters; ++i) coarse[i] = std::round(x[i] * 4) / 4;
      x = coarse;
      descend(x, 1);
      pace.step({.rate = rate}, x, coarse);
    }
    pace.meet(x, OwnPace::Then::ends);
    for (const float each : x) ASSERT_NEAR(each, 1.0 / 3 - 3 * rate, 1e-6) << "what rounding took was no step";
  });
}

TEST(OwnPace, ABoundHoldsTheFastBackButNotForThoseWhoRest) {
  constexpr int most = 40;
  std::mutex mutex;
  std::vector<int> complete(3, 0);
  int ahead = 0;
  run_ranks(3, [&](Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    std::vector<float> x(parameters, 1);
    OwnPace pace(comm, *policy("ssp:2"), x);
    for (int round = 0; round < 3; ++round) {
      // Rank 2 has the fewest steps and takes long over each, and waits for the others to be as far ahead as they may:
      // these end their many only once it rests.
      const int steps = rank == 2 ? 5 : most;
      for (int step = 0; step < steps; ++step) {
        if (rank == 2) {
          const auto are_ahead = [&] {
            const std::lock_guard lock(mutex);
            return std::min(complete[0], complete[1]) >= complete[2] + 2;
          };
          for (int i = 0; i < 30'000 && !are_ahead(); ++i) std::this_thread::sleep_for(1ms);
          std::this_thread::sleep_for(2ms);
        }
        descend(x, 0);
        pace.step({.rate = rate}, x);
        const std::lock_guard lock(mutex);
        ++complete[rank];
        if (complete[2] < 5) ahead = std::max(ahead, complete[rank] - complete[2]);
      }
      pace.meet(x, round < 2 ? OwnPace::Then::goes_on : OwnPace::Then::ends);
      if (rank == 0) {
        EXPECT_EQ(complete[0], most);
        // A rank returns from a step when it may begin the next one: 3 at most are complete ahead of the slowest, and
        // that one may have ended one more than it has counted here.
        EXPECT_LE(ahead, 4);
        EXPECT_GE(ahead, 2) << "it holds back more than its bound says";
      }
      // Nobody is on his next round before all have looked.
      if (round < 2) {
        comm.barrier();
        if (rank == 0) complete.assign(3, 0);
        comm.barrier();
      }
    }
  });
}

// Two fast ones and two slow ones: groups of these, whose members end at different times.
TEST(OwnPace, GroupsFormBySpeedAndWaitForNobodyWhoHasEnded) {
  for (const char* codec : {"none", "int8"})
    run_ranks(4,
              [&](Communicator& comm) {
                const bool is_fast = comm.rank() % 2 == 0;
                std::vector<float> x(parameters, 1);
                OwnPace pace(comm, *policy("group:1.3"), x, {.samples = 8, .compress = codec});
                EXPECT_THAT(pace.groups(), ElementsAre(0, 1, 2, 3));
                for (int round = 0; round < 2; ++round) {
                  for (int step = 0; step < 12 + 3 * comm.rank(); ++step) {
                    descend(x, x[0]);
                    pace.step({.rate = rate, .samples = 8, .seconds = is_fast ? 0.01 : 0.02}, x);
                  }
                  pace.meet(x, round < 1 ? OwnPace::Then::goes_on : OwnPace::Then::ends);
                  std::vector<float> of_first = x;
                  if (round < 1) {
                    comm.broadcast(of_first, 0);
                    ASSERT_EQ(x, of_first) << codec;
                  }
                }
                EXPECT_THAT(pace.groups(), ElementsAre(0, 1, 0, 1));
                EXPECT_THAT(pace.shares(), ElementsAre(1.0 / 3, 1.0 / 6, 1.0 / 3, 1.0 / 6));
                EXPECT_LT(std::abs(x[0]), 0.1) << codec << ": each step of everybody's takes a fourth off";
              },
              {.way = "shm"});
}

TEST(OwnPace, AGroupOfAllAveragesBySamples) {
  run_ranks(3,
            [&](Communicator& comm) {
              std::vector<float> x(parameters, 0);
              const double samples = 1.0 + comm.rank();
              OwnPace pace(comm, *policy("group:4"), x, {.samples = samples});
              for (int step = 0; step < 10; ++step)
                pace.step({.rate = rate, .samples = samples, .seconds = samples}, x);
              EXPECT_THAT(pace.groups(), Each(0));
              // Of 1, 2 and 3 samples; the last rank ends behind two of the other's four steps.
              for (int step = 0; step < (comm.rank() == 2 ? 2 : 4); ++step) {
                descend(x, 6.0F * static_cast<float>(comm.rank()));
                pace.step({.rate = rate, .samples = samples, .seconds = samples}, x);
              }
              pace.meet(x, OwnPace::Then::ends);
              // 0, 6 and 12 by 1, 2 and 3 of 6 samples; then those of the last are missing, which the step is shorter
              // by.
              const float expected = -rate * (2 * (2 * 6 + 3 * 12) / 6.0F + 2 * (2 * 6) / 6.0F);
              for (const float each : x) ASSERT_NEAR(each, expected, 1e-4);
            },
            {.way = "shm"});
}

TEST(OwnPace, GroupsAreFormedAnewWhereSpeedsHaveChanged) {
  run_ranks(3,
            [&](Communicator& comm) {
              std::vector<float> x(parameters, 0);
              OwnPace pace(comm, *policy("group:1.3"), x);
              const auto train = [&](double seconds, int steps) {
                for (int step = 0; step < steps; ++step) pace.step({.rate = rate, .seconds = seconds}, x);
                pace.meet(x, OwnPace::Then::goes_on);
              };
              train(comm.rank() == 0 ? 1 : 2, 3);  // fewer than it measures by
              const auto before = pace.groups();
              EXPECT_THAT(before, ElementsAre(0, 0, 0)) << "who would be alone joins the nearest";
              EXPECT_NEAR(pace.shares()[0], 0.5, 1e-6);
              train(comm.rank() == 0 ? 1 : 2.1, 32);
              EXPECT_EQ(pace.groups(), before);
              EXPECT_NEAR(pace.shares()[0], 1 / (1 + 2 / 2.1), 1e-6) << "more steps know better";
              for (int window = 0; window < 2; ++window) {
                train(comm.rank() < 2 ? 1 : 1.1, 32);
                EXPECT_NEAR(pace.shares()[0], 1 / (1 + 2 / 2.1), 1e-6) << "three windows before another change";
              }
              train(comm.rank() < 2 ? 1 : 1.1, 32);
              EXPECT_THAT(pace.groups(), Each(0));
              EXPECT_NEAR(pace.shares()[0], 1.0 / 3, 1e-6) << "a tenth is no difference";
              pace.meet(x, OwnPace::Then::ends);
            },
            {.way = "shm"});
}

// Nobody's speed is known, and ranks come to their tenth step and to the meeting in different orders.
TEST(OwnPace, GroupsOfUnknownSpeedsWait) {
  run_ranks(3,
            [&](Communicator& comm) {
              std::vector<float> x(parameters, 0);
              OwnPace pace(comm, *policy("group:1.3"), x);
              for (int meeting = 0; meeting < 3; ++meeting) {
                for (int step = 0; step < 6 * (comm.rank() + 1); ++step)
                  pace.step({.rate = rate, .seconds = meeting < 2 ? 0 : 1.0}, x);
                pace.meet(x, meeting < 2 ? OwnPace::Then::goes_on : OwnPace::Then::ends);
                if (meeting < 2) {
                  EXPECT_THAT(pace.groups(), ElementsAre(0, 1, 2));
                } else {
                  EXPECT_THAT(pace.groups(), Each(0));
                }
              }
            },
            {.way = "shm"});
}

TEST(OwnPace, PeersKeepTheSumAndMeetInTheMean) {
  for (const auto& [world, codec] : {std::pair{2, "none"}, {3, "none"}, {4, "none"}, {4, "int8"}, {5, "hadamard+int4"}})
    run_ranks(world, [&, world = world, codec = codec](Communicator& comm) {
      std::vector<float> x(parameters, 0);
      OwnPace pace(comm, *policy("ad-psgd"), x, {.compress = codec});
      double expected = 0;
      for (int meeting = 1; meeting <= 2; ++meeting) {
        for (int step = 0; step < 3 * (comm.rank() + 1); ++step) {
          descend(x, static_cast<float>(comm.rank() + 1));
          pace.step({.rate = rate}, x);
        }
        pace.meet(x, meeting < 2 ? OwnPace::Then::goes_on : OwnPace::Then::ends);
        for (Rank rank = 1; rank <= world; ++rank) expected -= 3.0 * rank * rank * rate / world;
        for (const float each : x) ASSERT_NEAR(each, expected, 1e-4) << world;
      }
      // One behind each step of those who ask; who is asked counts what others ask for.
      if (comm.rank() % 2 == 1 || comm.rank() + 1 == world) {
        EXPECT_EQ(pace.exchanges(), static_cast<std::uint64_t>(6 * (comm.rank() + 1)));
      } else if (world == 2) {
        EXPECT_EQ(pace.exchanges(), 12U);
      }
    });
}

// By gradients that are the same wherever the model is: in whatever order the ranks take their steps, it goes by the
// sum of all but what is still owed.
TEST(OwnPace, CodesOfUpdatesLoseNothingForGood) {
  for (const char* spec : {"async:staleness=0", "ssp:1,staleness=0"})
    run_ranks(3, [&](Communicator& comm) {
      const auto slope = [](std::size_t value, Rank rank) {
        return static_cast<float>(value % 7) + 2 * static_cast<float>(rank) - 3;
      };
      std::vector<float> x(parameters, 1);
      OwnPace pace(comm, *policy(spec), x, {.compress = "topk:0.1"});
      for (int step = 0; step < 60; ++step) {
        for (std::size_t i = 0; i < parameters; ++i) x[i] -= rate * slope(i, comm.rank());
        pace.step({.rate = rate}, x);
      }
      std::vector<float> owed = pace.owed();
      ASSERT_EQ(owed.size(), parameters);
      pace.meet(x, OwnPace::Then::ends);
      comm.all_reduce(owed, {.op = ReduceOp::sum});
      for (std::size_t i = 0; i < parameters; ++i)  // rank 1's slope is the mean
        ASSERT_NEAR(x[i], 1 - rate * (60 * slope(i, 1) - owed[i] / 3), 1e-3) << spec << ", value " << i;
      EXPECT_LT(pace.bytes_sent(), 60 * parameters * 4 / 2);
    });
}

// What a codec has held back is of the rates that there were: at a rate of 0 the model stays near where it is.
TEST(OwnPace, ARateOfZeroDoesNotPushWhatIsOwedAtAnother) {
  run_ranks(2, [&](Communicator& comm) {
    std::vector<float> x(parameters, 1);
    OwnPace pace(comm, *policy("async:staleness=0"), x, {.compress = "topk:0.01"});
    constexpr float slow = 1e-3F;
    for (int step = 0; step < 20; ++step) {
      for (float& each : x) each -= slow;
      pace.step({.rate = slow}, x);
    }
    for (int step = 0; step < 5; ++step) pace.step({.rate = 0}, x);
    pace.meet(x, OwnPace::Then::ends);
    for (const float each : x) ASSERT_GT(each, 1 - 21 * slow) << "20 steps go no further";
  });
}

TEST(OwnPace, SharesAreOfTheSamplesThatThereAreNow) {
  run_ranks(2, [&](Communicator& comm) {
    std::vector<float> x(parameters, 0);
    OwnPace pace(comm, *policy("async:staleness=0"), x);
    pace.set_samples(comm.rank() == 0 ? 3 : 5);
    pace.meet(x, OwnPace::Then::goes_on);
    descend(x, 8);
    pace.step({.rate = rate, .samples = comm.rank() == 0 ? 3.0 : 5.0}, x);
    pace.meet(x, OwnPace::Then::ends);
    for (const float each : x) ASSERT_FLOAT_EQ(each, -8 * rate);
  });
}

// Of which an epoch's last batch is no sign: steps behind it count as those before it.
TEST(OwnPace, AShortStepBeforeAMeetingIsNoneOfTheNextOnes) {
  for (const bool is_told_each_time : {false, true})
    run_ranks(2, [&](Communicator& comm) {
      std::vector<float> x(parameters, 0);
      OwnPace pace(comm, *policy("async:staleness=0"), x, {.samples = 8});
      const auto step = [&](double samples, float gradient) {
        if (is_told_each_time) pace.set_samples(samples);
        descend(x, gradient);
        pace.step({.rate = rate, .samples = samples}, x);
      };
      step(8, 0);
      step(1, 0);
      pace.meet(x, OwnPace::Then::goes_on);
      step(8, 1);
      pace.meet(x, OwnPace::Then::goes_on);
      for (const float each : x) ASSERT_FLOAT_EQ(each, -rate);
      // What is told behind the last step is of those to come.
      pace.set_samples(4);
      pace.meet(x, OwnPace::Then::goes_on);
      step(4, 1);
      pace.meet(x, OwnPace::Then::ends);
      for (const float each : x) ASSERT_FLOAT_EQ(each, -2 * rate);
    });
}

TEST(OwnPace, RanksThatDoNotEndTogetherAreToldSo) {
  run_ranks(3, [](Communicator& comm) {
    std::vector<float> x(parameters, 1);
    {
      OwnPace pace(comm, *policy("async"), x);
      try {
        pace.meet(x, comm.rank() == 1 ? OwnPace::Then::ends : OwnPace::Then::goes_on);
        ADD_FAILURE() << "they met";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::mismatch);
        EXPECT_THAT(error.what(), HasSubstr("rank 1 ends its training where rank 0 only meets"));
      }
    }
  });
}

TEST(OwnPace, WhatCannotBeIsRefused) {
  const auto refusal = [](const char* spec, const char* codec) -> std::string {
    try {
      OwnPace::check(*policy(spec), codec);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal("group", "topk:0.01+int8"), "");
  EXPECT_THAT(refusal("local:4", "none"), HasSubstr("steps of 'local:4' are everybody's"));
  EXPECT_THAT(refusal("async:servers=1", "none"), HasSubstr("every rank trains"));
  EXPECT_EQ(refusal("ad-psgd", "int8"), "");
  EXPECT_THAT(refusal("ad-psgd", "topk:0.01"), HasSubstr("take int4, int8"));
  EXPECT_THAT(refusal("ssp:3", "powersgd:4"), HasSubstr("powersgd"));
  run_ranks(1, [](Communicator& comm) {
    std::vector<float> x(parameters, 1);
    EXPECT_THROW(OwnPace(comm, *policy("async"), x, {.samples = 0}), Error);
    OwnPace pace(comm, *policy("async"), x);
    EXPECT_THROW(pace.step({.samples = std::nan("")}, x), Error);
  });
}

}  // namespace
}  // namespace ranvier
