// Whether training goes as a plan (plan_file.h) predicted: by how many of its steps that can be told, and when it is
// wrong. Measuring steps, agreeing on them and planning again is the caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ranvier {

// What a step takes, or was expected to take, in seconds.
struct StepSeconds {
  double step = 0;
  double waiting = 0;  // for averages, of the step
};

// How far steps may be from their plan before it is called wrong, the other way by as large a factor; of how many
// steps that is judged, again and again, and of how many those of unequal workers; and how often the plan is changed
// until each change takes twice as many: where it stays wrong, that is no matter of plans.
inline constexpr double tolerated_error = 0.25;
inline constexpr std::size_t judged_steps = 20;
inline constexpr std::size_t judged_unequal_steps = 100;
inline constexpr std::size_t quick_changes = 3;
// The first few steps are slower: memory and caches are new.
inline constexpr std::size_t warm_up_steps = 3;

// After how many steps, 1024 at most, a policy begins anew with what it has done: 1 where gradients are averaged in all
// of them. 0 where it does not, and where workers go at their own pace. Throws Error{usage} for a spec that is none.
std::size_t period_of(const std::string& sync, std::uint64_t world);

class PlanJudge {
 public:
  // Of a plan by which steps of the policy `sync` among `world` ranks, which may be unequal on purpose, take as long as
  // `expected`; zeros: nothing is. Throws as period_of does.
  PlanJudge(const std::string& sync, std::uint64_t world, const StepSeconds& expected, bool are_unequal = false);

  // False where nothing is expected, and of a policy that has no period.
  bool judges() const { return expected_.step > 0 && period_ > 0; }
  // Whether it is to be judged now, so many steps after it began or was last changed.
  bool is_due(std::size_t steps) const;
  // Of so many last ones, whole periods, …
  std::size_t window() const;
  // … the median, since they are all of one kind; else the mean.
  bool by_median() const { return period_ == 1 && !are_unequal_; }
  bool is_wrong(const StepSeconds& measured) const;

  const StepSeconds& expected() const { return expected_; }
  // From now on, all else being as it was; zeros: it is judged no more.
  void expect(const StepSeconds& seconds) { expected_ = seconds; }
  // What was expected was wrong, and ranks do something else now; so many times in all.
  void change(const StepSeconds& expected);
  std::size_t changes() const { return changes_; }
  void set_changes(std::size_t changes) { changes_ = changes; }

 private:
  std::size_t period_ = 1;
  bool are_unequal_ = false;
  StepSeconds expected_;
  std::size_t changes_ = 0;
};

}  // namespace ranvier
