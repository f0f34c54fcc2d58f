// How a model is divided among workers, and in which order stages of a pipeline work; the real thing is
// parallel_test.py.
#include "integrations/trainer/division.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "integrations/trainer/pipeline_order.h"
#include "support/refusal.h"

namespace ranvier::trainer {
namespace {

using support::refusal;
using testing::HasSubstr;

TEST(Division, IsSaidByASpec) {
  EXPECT_EQ(parse_division("none").way, Division::Way::whole);
  EXPECT_EQ(parse_division("none").parts, 1);
  EXPECT_EQ(parse_division("tensor:4").way, Division::Way::tensor);
  EXPECT_EQ(parse_division("tensor:4").parts, 4);
  EXPECT_EQ(parse_division("pipeline:3").way, Division::Way::pipeline);
  for (const std::string_view wrong : {"tensor", "tensor:1", "tensor:-2", "tensor:2.5", "tensor:many", "none:2",
                                       "tensor:2+pipeline:2", "tensor:2,by=3", "pipeline:99999999999"})
    EXPECT_THAT(refusal([&] { parse_division(wrong); }), HasSubstr("write tensor:2")) << wrong;
  EXPECT_THAT(refusal([] { parse_division("tensr:2"); }), HasSubstr("did you mean 'tensor'"));
}

TEST(Division, HasToSuitModelAndWorkers) {
  const auto check = [](std::string_view spec, std::string_view model, Rank world) {
    return refusal([&] { check_division(parse_division(spec), model, world); });
  };
  EXPECT_EQ(check("tensor:2", "cnn", 4), "nothing was refused");
  EXPECT_EQ(check("pipeline:5", "resnet", 10), "nothing was refused");
  EXPECT_EQ(check("none", "gan", 3), "nothing was refused");
  EXPECT_EQ(check("tensor:4", "transformer", 8), "nothing was refused");
  EXPECT_EQ(check("pipeline:3", "lstm", 3), "nothing was refused");
  EXPECT_THAT(check("tensor:2", "resnet", 4), HasSubstr("cannot be divided"));
  EXPECT_THAT(check("tensor:2", "lstm", 4), HasSubstr("cannot be divided"));
  EXPECT_THAT(check("pipeline:2", "gan", 4), HasSubstr("cannot be divided"));
  EXPECT_THAT(check("tensor:5", "transformer", 5), HasSubstr("4 parts at most"));
  EXPECT_THAT(check("pipeline:3", "mlp", 3), HasSubstr("2 parts at most"));
  EXPECT_THAT(check("tensor:2", "mlp", 3), HasSubstr("3 workers are no whole number of replicas"));
}

// All stages of a pipeline by their orders, joined by queues: whether every pass goes forth and back, and how many of
// them a stage keeps at a time.
std::vector<std::size_t> most_kept(std::size_t stages, std::size_t passes) {
  std::vector<std::deque<StageStep>> left;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    const auto order = one_forward_one_backward(stage, stages, passes);
    left.emplace_back(order.begin(), order.end());
  }
  std::vector<std::deque<std::size_t>> forth(stages + 1), back(stages + 1);  // what has been sent to a stage
  for (std::size_t pass = 0; pass < passes; ++pass) forth[0].push_back(pass);
  std::vector<std::map<std::size_t, bool>> kept(stages);
  std::vector<std::size_t> most(stages, 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t stage = 0; stage < stages; ++stage) {
      if (left[stage].empty()) continue;
      const auto [is_forward, pass] = left[stage].front();
      const bool is_last = stage + 1 == stages;
      auto& arrives = is_forward ? forth[stage] : back[stage];
      if (is_forward || !is_last) {
        if (arrives.empty()) continue;
        EXPECT_EQ(arrives.front(), pass);
        arrives.pop_front();
      }
      if (is_forward) {
        kept[stage][pass] = true;
        most[stage] = std::max(most[stage], kept[stage].size());
        if (!is_last) forth[stage + 1].push_back(pass);
      } else {
        EXPECT_EQ(kept[stage].erase(pass), 1U);
        if (stage > 0) back[stage - 1].push_back(pass);
      }
      left[stage].pop_front();
      moved = true;
    }
  }
  for (std::size_t stage = 0; stage < stages; ++stage) {
    EXPECT_TRUE(left[stage].empty()) << "stage " << stage << " of " << stages << " waits for ever";
    EXPECT_TRUE(kept[stage].empty());
  }
  return most;
}

TEST(PipelineOrder, TakesEveryPassForthAndBackAndKeepsNoMoreThanStagesAreBehind) {
  for (std::size_t stages = 1; stages <= 6; ++stages)
    for (std::size_t passes = 0; passes <= 12; ++passes) {
      const auto most = most_kept(stages, passes);
      for (std::size_t stage = 0; stage < stages; ++stage)
        EXPECT_EQ(most[stage], std::min(stages - stage, passes)) << stages << " " << passes;
    }
}

TEST(PipelineOrder, IsOneForwardOneBackward) {
  const StageStep f0{true, 0}, f1{true, 1}, f2{true, 2}, b0{false, 0}, b1{false, 1}, b2{false, 2};
  EXPECT_EQ(one_forward_one_backward(0, 3, 3), (std::vector{f0, f1, f2, b0, b1, b2}));
  EXPECT_EQ(one_forward_one_backward(1, 3, 3), (std::vector{f0, f1, b0, f2, b1, b2}));
  EXPECT_EQ(one_forward_one_backward(2, 3, 3), (std::vector{f0, b0, f1, b1, f2, b2}));
}

}  // namespace
}  // namespace ranvier::trainer
