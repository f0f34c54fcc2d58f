#include "ranvier/worker_speeds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

namespace ranvier {
namespace {

using testing::DoubleEq;
using testing::DoubleNear;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pointwise;

PaceReport exact(double speed, double steps = 32) { return {.seconds_per_sample = 1 / speed, .steps = steps}; }

std::vector<PaceReport> exact(const std::vector<double>& speeds, double steps = 32) {
  std::vector<PaceReport> reports;
  for (const double speed : speeds) reports.push_back(exact(speed, steps));
  return reports;
}

// ---- One worker's pace.

TEST(Pace, WhoIsLateNowAndThenIsNotSlow) {
  const PaceReport report = pace_of({1, 1.1, 4, 0.9, 1, 4.2, 1, 1.1, 0.9, 1});
  EXPECT_EQ(report.seconds_per_sample, 1);
  EXPECT_DOUBLE_EQ(report.late_share, 0.2);
  EXPECT_DOUBLE_EQ(report.late_factor, 4.1);
  EXPECT_EQ(report.steps, 10);
  // Of three steps two were late.
  EXPECT_EQ(pace_of({4, 1, 4}).seconds_per_sample, 1);
  EXPECT_DOUBLE_EQ(pace_of({4, 1, 4}).late_share, 2.0 / 3);
  EXPECT_EQ(pace_of({}).steps, 0);
  EXPECT_EQ(pace_of({}).seconds_per_sample, 0);
}

TEST(Pace, ItsErrorIsAsLargeAsChanceMakesIt) {
  for (const double spread : {0.02, 0.1, 0.2})
    for (const int steps : {3, 10, 32, 96}) {
      std::mt19937 random(static_cast<unsigned>(steps));
      std::lognormal_distribution<double> time(0, spread);
      double squares = 0;
      double error = 0;
      constexpr int runs = 2000;
      for (int run = 0; run < runs; ++run) {
        std::vector<double> times(static_cast<std::size_t>(steps));
        for (double& each : times) each = time(random);
        const PaceReport report = pace_of(times);
        squares += std::pow(std::log(report.seconds_per_sample), 2) / runs;
        error += report.error / runs;
      }
      EXPECT_GT(error, (steps < 10 ? 0.6 : 0.8) * std::sqrt(squares)) << spread << ' ' << steps;
      // Few steps that happen to be alike are not exact.
      EXPECT_LT(error, 1.4 * std::sqrt(squares) + 0.11 / std::sqrt(steps)) << spread << ' ' << steps;
    }
}

TEST(Pace, IsThatOfTheLastThreeWindows) {
  RecentSteps steps;
  EXPECT_EQ(steps.report().steps, 0);
  for (int i = 0; i < 3; ++i) steps.add(9);
  EXPECT_EQ(steps.report().seconds_per_sample, 9) << "there are no others";
  for (int i = 0; i < 7; ++i) steps.add(1);
  EXPECT_EQ(steps.report().seconds_per_sample, 1);
  EXPECT_EQ(steps.report().late_share, 0) << "the first ones do not count any more";
  EXPECT_EQ(steps.report().steps, 7);
  steps.add(1);
  EXPECT_EQ(steps.report().steps, 8) << "a window of less goes on";
  for (int window = 0; window < 3; ++window) {
    for (int i = 0; i < 10; ++i) steps.add(2);
    EXPECT_EQ(steps.report().steps, window < 2 ? 18 + 10 * window : 30);
  }
  EXPECT_EQ(steps.report().seconds_per_sample, 2);
  EXPECT_EQ(steps.report().error, steps.report().error) << "to be asked again changes nothing";
  // A long window counts as much as 32 steps of it, from its beginning to its end.
  for (int i = 0; i < 100'000; ++i) steps.add(i < 50'000 ? 2 : 3);
  EXPECT_EQ(steps.report().steps, 20 + 32);
  for (int window = 0; window < 2; ++window) {
    for (int i = 0; i < 1000; ++i) steps.add(i < 200 ? 3 : 5);
    steps.report();
  }
  EXPECT_NEAR(steps.report().steps, 96, 3);
  EXPECT_EQ(steps.report().seconds_per_sample, 5);
}

// ---- All workers'.

// Steps of workers that are `speeds` fast, of which some take longer, with windows as --sync auto has them that looks
// at its result every ten steps.
class Cluster {
 public:
  Cluster(unsigned seed, std::vector<double> speeds, double spread, double late_share, double late_factor)
      : random_(seed),
        speeds_(std::move(speeds)),
        workers_(speeds_.size()),
        time_(0, spread),
        late_share_(late_share),
        late_factor_(late_factor) {}

  void take(int steps) {
    for (int step = 0; step < steps; ++step, ++taken_)
      for (std::size_t rank = 0; rank < speeds_.size(); ++rank) {
        const bool is_late = std::bernoulli_distribution(late_share_)(random_);
        workers_[rank].add(time_(random_) / speeds_[rank] * (is_late ? late_factor_ : 1) * (taken_ == 0 ? 1.5 : 1));
      }
  }
  bool look() {
    std::vector<PaceReport> reports;
    for (RecentSteps& each : workers_) reports.push_back(each.report());
    return known_.add(reports);
  }
  // Whether all count as equally fast.
  bool is_even() const {
    const auto speeds = known_.speeds();
    return std::ranges::all_of(speeds, [&](double each) { return each == speeds.front(); });
  }
  std::vector<double> ratios() const {
    auto speeds = known_.speeds();
    for (double& each : speeds) each /= known_.speeds().back();
    return speeds;
  }
  void become(std::vector<double> speeds) { speeds_ = std::move(speeds); }

 private:
  std::mt19937 random_;
  std::vector<double> speeds_;
  std::vector<RecentSteps> workers_;
  std::lognormal_distribution<double> time_;
  double late_share_;
  double late_factor_;
  int taken_ = 0;
  WorkerSpeeds known_;
};

// Calls `look` behind steps 3, 10, 20, 30, 32, 40, … until the last.
void for_each_look(Cluster& cluster, int last, const std::function<void(int step)>& look) {
  int taken = 0;
  for (int step = 3; step <= last; ++step) {
    if (step != 3 && step % 10 != 0 && step % 32 != 0) continue;
    cluster.take(step - std::exchange(taken, step));
    look(step);
  }
}

TEST(WorkerSpeeds, EqualWorkersThatAreLateNowAndThenStayEqual) {
  int parted = 0, at_once = 0;
  constexpr int runs = 3000;
  for (unsigned seed = 0; seed < runs; ++seed) {
    Cluster cluster(seed, {1, 1, 1, 1}, 0.1, 0.1, 4);
    bool is_even = true;
    for_each_look(cluster, 240, [&](int step) {
      cluster.look();
      is_even = is_even && cluster.is_even();
      if (step == 3 && !is_even) ++at_once;
    });
    parted += is_even ? 0 : 1;
  }
  EXPECT_LE(parted, runs / 100) << at_once << " of them by their first three steps";
}

TEST(WorkerSpeeds, WhoIsHalfAsFastIsFoundWithinFewSteps) {
  constexpr int runs = 2000;
  int by_three = 0, by_ten = 0;
  for (unsigned seed = 0; seed < runs; ++seed) {
    Cluster cluster(seed, {1, 1, 0.5, 0.5}, 0.1, 0.1, 4);
    for_each_look(cluster, 60, [&](int step) {
      cluster.look();
      if (step == 3 && !cluster.is_even()) ++by_three;
      if (step == 10 && !cluster.is_even()) ++by_ten;
      if (step > 10) {
        ASSERT_FALSE(cluster.is_even()) << seed << ' ' << step;
      }
    });
    ASSERT_THAT(cluster.ratios(), Pointwise(DoubleNear(0.35), {2, 2, 1, 1})) << seed;
  }
  EXPECT_GT(by_three, runs * 0.7);
  EXPECT_GT(by_ten, runs * 0.99);
}

TEST(WorkerSpeeds, WhatTheyWereIsForgottenWithinThreeWindows) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    Cluster cluster(seed, {1, 1, 1, 1}, 0.05, 0.05, 4);
    for (int window = 0; window < 4 + static_cast<int>(seed % 3); ++window) {
      cluster.take(32);
      cluster.look();
    }
    ASSERT_TRUE(cluster.is_even());
    cluster.become(seed % 2 == 0 ? std::vector<double>{1, 1, 1, 0.5} : std::vector<double>{1, 2, 1, 1});
    bool has_changed = false;
    for (int window = 0; window < 3; ++window) {
      cluster.take(32);
      has_changed = cluster.look() || has_changed;
    }
    ASSERT_TRUE(has_changed) << seed;
    cluster.become({1, 1, 1, 1});
    for (int window = 0; window < 6; ++window) {
      cluster.take(32);
      cluster.look();
    }
    ASSERT_TRUE(cluster.is_even()) << seed;
  }
}

// A machine that others use, too, makes any window wrong: of three in a row one may say of each worker what it likes.
TEST(WorkerSpeeds, OneWindowOfThreeMayBeWrong) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const auto at_random = [&](double from, double to) { return std::uniform_real_distribution(from, to)(random); };
    std::vector<double> speeds(2 + seed % 7);
    for (double& each : speeds) each = seed % 2 == 0 ? 1 : at_random(1, 8);
    speeds.front() = seed % 2 == 0 ? 1 : 0.5;  // no doubt whether they differ by more than a fifth
    std::vector<RecentSteps> workers(speeds.size());
    WorkerSpeeds known;
    int since_wrong = 1;
    for (int window = 0; window < 60; ++window) {
      const bool is_wrong = window > 0 && since_wrong >= 2 && at_random(0, 1) < 0.4;
      since_wrong = is_wrong ? 0 : since_wrong + 1;
      std::vector<PaceReport> reports;
      for (std::size_t rank = 0; rank < speeds.size(); ++rank) {
        const double off = is_wrong ? at_random(0.1, 10) : at_random(0.97, 1.03);
        for (int step = 0; step < 32; ++step) workers[rank].add(off / speeds[rank] * at_random(0.96, 1.04));
        reports.push_back(workers[rank].report());
      }
      ASSERT_EQ(known.add(reports), window == 0) << seed << ' ' << window;
    }
  }
}

TEST(WorkerSpeeds, AreThoseThatWereMeasuredWhereTheyDiffer) {
  WorkerSpeeds known;
  EXPECT_THAT(known.speeds(), IsEmpty());
  EXPECT_FALSE(known.add(std::vector<PaceReport>(3))) << "nobody has any steps";
  EXPECT_THAT(known.speeds(), IsEmpty());
  EXPECT_TRUE(known.add(exact({100, 100, 50})));
  EXPECT_THAT(known.speeds(), Pointwise(DoubleNear(1e-9), {100, 100, 50}));
  for (int window = 0; window < 5; ++window) {
    EXPECT_FALSE(known.add(exact({50, 50, 25}))) << "all have changed alike";
    EXPECT_FALSE(known.add(exact({100, 109, 51})));
  }
  EXPECT_TRUE(known.add(exact({100, 130, 50})));
  EXPECT_FALSE(known.add(exact({100, 100, 10}))) << "three windows before the next";
  EXPECT_FALSE(known.add(exact({100, 100, 10})));
  EXPECT_TRUE(known.add(exact({100, 100, 10})));
}

TEST(WorkerSpeeds, HardlyDifferentOnesAreOne) {
  WorkerSpeeds known;
  EXPECT_TRUE(known.add(exact({100, 110, 119})));
  EXPECT_THAT(known.speeds(), Each(DoubleEq(329.0 / 3)));
  auto uncertain = exact({100, 150});
  for (auto& each : uncertain) each.error = 0.06;
  WorkerSpeeds others;
  others.add(uncertain);
  EXPECT_THAT(others.speeds(), Each(125));
  for (auto& each : uncertain) each.error = 0.05;
  others = {};
  others.add(uncertain);
  EXPECT_THAT(others.speeds(), ElementsAre(DoubleEq(100), DoubleEq(150)));
}

// Until 24 steps have said it.
TEST(WorkerSpeeds, WhatFewStepsHaveSaidIsReplaced) {
  WorkerSpeeds known;
  EXPECT_TRUE(known.add(exact({100, 300}, 3)));
  EXPECT_TRUE(known.add(exact({100, 200}, 10)));
  EXPECT_TRUE(known.add(exact({100, 210}, 24)));
  EXPECT_FALSE(known.add(exact({100, 200}, 34)));
  EXPECT_THAT(known.speeds()[1] / known.speeds()[0], DoubleEq(2.1));
  WorkerSpeeds equal;
  EXPECT_TRUE(equal.add(exact({100, 300}, 3)));
  EXPECT_TRUE(equal.add(exact({100, 100}, 10)));
  EXPECT_FALSE(equal.add(exact({100, 101}, 20)));
}

TEST(WorkerSpeeds, WhoHasNoStepsYetIsOneOfTheMiddle) {
  WorkerSpeeds known;
  EXPECT_TRUE(known.add(std::vector{exact(100), PaceReport{}, exact(50)}));
  EXPECT_THAT(known.speeds(), Pointwise(DoubleNear(1e-9), {100, 75, 50}));
  EXPECT_TRUE(known.add(exact({100, 100, 50}))) << "nothing is held of who had none";
}

}  // namespace
}  // namespace ranvier
