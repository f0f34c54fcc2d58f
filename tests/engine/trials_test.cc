// What is tried when ranks meet, and what a selection makes of it. The world is one rank's, in which each algorithm
// takes as long as the test says.
#include "engine/trials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/link_probe.h"

namespace ranvier::engine {
namespace {

constexpr std::size_t tried_slice = 128 << 10;

SelectionSettings settings_of(Rank world, bool crowded, std::vector<Trial> trials = {}) {
  return {.world = world,
          .transport = "shm",
          .links = nominal_links("shm", crowded),
          .slice_bytes = tried_slice,
          .trials = std::move(trials)};
}

// Whose clock only operations move.
class Stage {
 public:
  using Seconds = std::function<double(const Request&)>;
  explicit Stage(Seconds seconds) : seconds_(std::move(seconds)) {}

  std::vector<Trial> trials(Selection& selection, const TrialLimits& limits = {}) {
    return try_contenders(
        selection, limits,
        [this](const Request& request) {
          if (request.algorithm.empty()) return;  // by which ranks share what they found
          ++all_operations_;
          if (request.collective == Collective::all_reduce) ++operations_[std::string(request.algorithm)];
          largest_ = std::max(largest_, std::max(request.input.bytes(), request.output.bytes()));
          now_ += seconds_(request);
        },
        [this] { return now_; });
  }
  double spent() const { return now_; }
  std::size_t largest() const { return largest_; }
  int all_operations() const { return all_operations_; }
  // All_reduces by each algorithm.
  const std::map<std::string, int>& operations() const { return operations_; }

 private:
  const Seconds seconds_;
  double now_ = 0;
  std::size_t largest_ = 0;
  int all_operations_ = 0;
  std::map<std::string, int> operations_;
};

double microseconds(const Request& request) { return 2e-6 + 0.1e-9 * static_cast<double>(request.output.bytes()); }

TEST(Trials, FindTheFastestThatTheModelHasForSlower) {
  Selection before(settings_of(4, true));
  for (const std::size_t bytes : {std::size_t{1} << 10, std::size_t{64} << 10}) {
    const std::vector<Prediction> contenders = before.contenders(Collective::all_reduce, bytes);
    ASSERT_GE(contenders.size(), 3u);
    const std::string winner = contenders.back().algorithm;
    ASSERT_NE(before.choice(Collective::all_reduce, bytes), winner);
    Stage stage(
        [&](const Request& request) { return (request.algorithm == winner ? 0.8 : 1) * microseconds(request); });
    Selection after(settings_of(4, true, stage.trials(before)));
    EXPECT_EQ(after.choice(Collective::all_reduce, bytes), winner) << bytes;
  }
}

TEST(Trials, LeaveTheModelItsChoiceWhereNothingIsClearlyFaster) {
  for (const Rank world : {2, 3, 4, 6})
    for (const Collective collective : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter})
      for (const double slower : {1.04, 1.2}) {
        Selection before(settings_of(world, true));
        const std::string choice = before.choice(collective, 1024);
        if (before.contenders(collective, 1024).size() < 2) continue;
        Stage stage([&](const Request& request) { return (request.algorithm == choice ? slower : 1) * 10e-6; });
        Selection after(settings_of(world, true, stage.trials(before, {.least_bytes = 1024, .most_bytes = 1024})));
        EXPECT_EQ(after.choice(collective, 1024) == choice, slower < 1.05) << name_of(collective) << ", " << world;
      }
}

// Each rank must try what the others try, whatever it measured itself.
TEST(Trials, AreTheSameWhateverARankMeasuredIfItIsToldTheSame) {
  std::vector<std::vector<std::string>> tried(2);
  for (const std::size_t rank : {0, 1}) {
    Selection selection(settings_of(4, true));
    double now = 0;
    std::size_t shared = 0;
    try_contenders(
        selection, {},
        [&](const Request& request) {
          now += rank == 0 ? 1e-6 : 7e-6;
          if (!request.algorithm.empty()) return tried[rank].emplace_back(request.algorithm);
          // The slowest rank's of each, which a third one is.
          auto* const seconds = static_cast<double*>(request.output.data);
          for (std::size_t i = 0; i < request.output.count; ++i)
            seconds[i] = 1e-6 * static_cast<double>(10 + (i * 7 + shared) % 5);
          ++shared;
          return tried[rank].emplace_back("shared");
        },
        [&] { return now; });
  }
  EXPECT_GT(tried[0].size(), 100u);
  EXPECT_EQ(tried[0], tried[1]);
}

TEST(Trials, GiveUpWhatIsSlowAfterTheFirstBatches) {
  Selection selection(settings_of(4, true));
  const std::string slow = selection.contenders(Collective::all_reduce, 4096).back().algorithm;
  Stage stage([&](const Request& request) { return (request.algorithm == slow ? 3 : 1) * microseconds(request); });
  stage.trials(selection, {.least_bytes = 4096, .most_bytes = 4096});
  int most = 0;
  for (const auto& [algorithm, count] : stage.operations()) most = std::max(most, count);
  EXPECT_GT(stage.operations().at(slow), 0);
  EXPECT_GE(most, 4 * stage.operations().at(slow));
}

// What an algorithm meets in the caches of another one's vectors is gone after a few operations.
TEST(Trials, OfLargeVectorsDoNotCountTheFirstOperations) {
  constexpr std::size_t bytes = 64 << 10;
  Selection before(settings_of(4, true));
  const std::string winner = before.contenders(Collective::all_reduce, bytes).back().algorithm;
  std::string last;
  int in_a_row = 0;
  Stage stage([&](const Request& request) {
    in_a_row = request.algorithm == last ? in_a_row + 1 : 1;
    last = request.algorithm;
    return (in_a_row <= 4 ? 3 : request.algorithm == winner ? 0.8 : 1) * 10e-6;
  });
  Selection after(settings_of(4, true, stage.trials(before, {.least_bytes = bytes, .most_bytes = bytes})));
  EXPECT_EQ(after.choice(Collective::all_reduce, bytes), winner);
}

// The shortest of short batches, which is all that there is of them, is less than a median of long ones.
TEST(Trials, HaveWhoWasGivenUpForNoFasterThanWhoStayed) {
  Selection before(settings_of(4, true));
  std::map<std::string, int> operations;
  std::map<std::string, double> seconds;  // each 2 % slower than the one before
  for (const Prediction& each : before.contenders(Collective::all_reduce, 4096))
    seconds.emplace(each.algorithm, 10e-6 + 0.2e-6 * static_cast<double>(seconds.size()));
  ASSERT_GT(seconds.size(), 3u);
  Stage stage([&](const Request& request) {
    const std::string algorithm(request.algorithm);
    if (request.collective != Collective::all_reduce) return 1.0;
    return (++operations[algorithm] > 45 ? 1.5 : 1) * seconds.at(algorithm);
  });
  std::vector<Trial> trials = stage.trials(before, {.seconds = 1e-3, .least_bytes = 4096, .most_bytes = 4096});
  std::ranges::stable_sort(trials, {}, &Trial::seconds);
  EXPECT_GT(operations.at(trials.front().algorithm), 45);
  EXPECT_EQ(trials.front().algorithm, before.contenders(Collective::all_reduce, 4096).front().algorithm);
}

TEST(Trials, HaveVectorsThatLieOnLinesOfTheCache) {
  Selection selection(settings_of(4, true));
  int others = 0;
  Stage stage([&](const Request& request) {
    for (const void* const each : {request.input.data, static_cast<const void*>(request.output.data)})
      others += reinterpret_cast<std::uintptr_t>(each) % 64 != 0;
    return microseconds(request);
  });
  EXPECT_FALSE(stage.trials(selection).empty());
  EXPECT_EQ(others, 0);
}

TEST(Trials, LeaveOutForOneSizeWhatWasSlowAtTheOneBefore) {
  Selection selection(settings_of(4, true));
  const auto has = [&](std::size_t bytes, const std::string& algorithm) {
    const auto contenders = selection.contenders(Collective::all_reduce, bytes);
    return std::ranges::count(contenders, algorithm, &Prediction::algorithm) > 0;
  };
  std::string slow;
  for (const Prediction& each : selection.contenders(Collective::all_reduce, 4096))
    if (has(16384, each.algorithm) && has(65536, each.algorithm) &&
        each.algorithm != selection.choice(Collective::all_reduce, 16384))
      slow = each.algorithm;
  ASSERT_FALSE(slow.empty());
  Stage stage([&](const Request& request) { return (request.algorithm == slow ? 3 : 1) * microseconds(request); });
  std::vector<std::size_t> tried;
  for (const Trial& each : stage.trials(selection, {.least_bytes = 4096, .most_bytes = 65536}))
    if (each.collective == Collective::all_reduce && each.algorithm == slow) tried.push_back(each.bytes);
  EXPECT_EQ(tried, (std::vector<std::size_t>{4096, 65536}));
}

TEST(Trials, EndWhereOperationsAreLongOrTheTimeIsUp) {
  Selection selection(settings_of(4, true));
  Stage endless([](const Request&) { return 1e-3; });
  endless.trials(selection);
  EXPECT_EQ(endless.largest(), 64u) << "one size showed that they are";

  Stage costly([](const Request&) { return 100e-6; });
  costly.trials(selection, {.seconds = 0.02});
  EXPECT_LT(costly.spent(), 0.02 + 0.05) << "what was begun is finished";

  Stage quick([](const Request&) { return 1e-9; });  // so that time never is
  quick.trials(selection);
  EXPECT_LT(quick.all_operations(), 0xF000) << "of 16 bits in which they are counted";

  Selection far({.world = 4,
                 .transport = "tcp",
                 .links = {.latency = 10e-3, .message = 1e-6, .byte = 1e-9, .reduce = 1e-9},
                 .slice_bytes = tried_slice});
  Stage unused([](const Request&) { return 10e-3; });
  EXPECT_TRUE(unused.trials(far).empty());
  EXPECT_EQ(unused.spent(), 0);
}

TEST(Trials, OfTwoRanksLeaveOutWhatIsOneProgramUnderManyNames) {
  Selection selection(settings_of(2, false));
  for (const Collective collective : {Collective::all_gather, Collective::reduce_scatter})
    EXPECT_EQ(selection.contenders(collective, 4096).size(), 1u) << name_of(collective);
  EXPECT_GE(selection.contenders(Collective::all_reduce, 4096).size(), 2u);
}

// To the model these two are equal.
TEST(SelectionByTrials, BelievesHalfOfADifferenceOfSmallerVectors) {
  const auto of = [](const char* algorithm, double seconds) {
    return Trial{.collective = Collective::all_reduce, .bytes = 1 << 20, .algorithm = algorithm, .seconds = seconds};
  };
  Selection selection(settings_of(4, true, {of("mesh:2x2", 200e-6), of("swing", 400e-6), of("direct", 500e-6)}));
  const auto seconds_of = [&](const char* algorithm) {
    const auto all = selection.ranked(Collective::all_reduce, 4 << 20);
    return std::ranges::find(all, algorithm, &Prediction::algorithm)->seconds;
  };
  EXPECT_NEAR(seconds_of("mesh:2x2") / seconds_of("swing"), std::sqrt(0.5), 1e-6);
  EXPECT_EQ(selection.choice(Collective::all_reduce, 4 << 20), "mesh:2x2");
}

TEST(SelectionByTrials, ReachesBeyondWhatWasTried) {
  const auto of = [](const char* algorithm, std::size_t bytes, double microseconds) {
    return Trial{
        .collective = Collective::all_reduce, .bytes = bytes, .algorithm = algorithm, .seconds = 1e-6 * microseconds};
  };
  Selection selection(settings_of(4, true,
                                  {of("ring", 64, 5), of("direct", 64, 3), of("ring", 256, 6), of("direct", 256, 9),
                                   of("ring", 1 << 20, 600), of("mesh:2x2", 1 << 20, 200)}));
  EXPECT_EQ(selection.choice(Collective::all_reduce, 4), "direct") << "below the least";
  EXPECT_EQ(selection.choice(Collective::all_reduce, 64), "direct");
  EXPECT_EQ(selection.choice(Collective::all_reduce, 128), "direct") << "between: 5.2 and 5.5";
  EXPECT_EQ(selection.choice(Collective::all_reduce, 256), "ring");
  for (const std::size_t bytes : {std::size_t{1} << 20, std::size_t{8} << 20})
    EXPECT_EQ(selection.choice(Collective::all_reduce, bytes), "mesh:2x2") << bytes;
  // Whose parts fill the caches, of these vectors that fit into them tell nothing.
  for (const std::size_t bytes : {std::size_t{16} << 20, std::size_t{1} << 30})
    EXPECT_EQ(selection.choice(Collective::all_reduce, bytes), "direct") << bytes;
  // Of small vectors only, they tell nothing of what bytes cost.
  Selection small(settings_of(4, true, {of("direct", 64, 3), of("one_round", 64, 30)}));
  Selection untried(settings_of(4, true));
  EXPECT_EQ(small.choice(Collective::all_reduce, 1 << 24), untried.choice(Collective::all_reduce, 1 << 24));
}

}  // namespace
}  // namespace ranvier::engine
