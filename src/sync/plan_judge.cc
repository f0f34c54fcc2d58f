#include "ranvier/plan_judge.h"

#include <algorithm>
#include <vector>

#include "ranvier/sync.h"

namespace ranvier {

std::size_t period_of(const std::string& sync, std::uint64_t world) {
  constexpr std::size_t most = 1024;
  constexpr std::size_t steps = 4 * most;
  // An epoch, which some have as their period, is of nobody knows how many steps.
  const auto policy = make_sync_policy(sync, {.steps_per_epoch = steps + 1, .steps = steps, .world = world});
  if (policy->goes_at_own_pace() || policy->wants_spread()) return 0;
  std::vector<std::vector<std::size_t>> asked_for(steps);
  for (std::size_t step = 0; step < steps; ++step)
    for (const SyncEvent& event : {SyncEvent{.point = SyncPoint::step_begins, .step = step},
                                   SyncEvent{.point = SyncPoint::step_ended, .step = step + 1}}) {
      bool has_averaged = false;
      for (const SyncAction& action : policy->react(event)) {
        auto& all = asked_for[step];
        all.insert(all.end(), {static_cast<std::size_t>(event.point), static_cast<std::size_t>(action.what),
                               action.inside, action.level, action.hops, action.fragment});
        has_averaged |= action.what == SyncAction::What::parameters && action.level == policy->levels().size();
      }
      if (has_averaged) policy->react({.point = SyncPoint::averaged, .step = step + 1});
    }
  if (std::ranges::all_of(asked_for, [](const auto& actions) { return actions.empty(); })) return 0;
  for (std::size_t period = 1; period <= most; ++period) {
    // In the first one nothing that a period before has sent comes to its end.
    const auto first = asked_for.begin() + static_cast<std::ptrdiff_t>(period);
    if (std::equal(first + static_cast<std::ptrdiff_t>(period), asked_for.end(), first)) return period;
  }
  return 0;
}

PlanJudge::PlanJudge(const std::string& sync, std::uint64_t world, const StepSeconds& expected, bool are_unequal)
    : are_unequal_(are_unequal), expected_(expected) {
  if (expected_.step > 0) period_ = period_of(sync, world);
}

bool PlanJudge::is_due(std::size_t steps) const {
  return judges() && steps > warm_up_steps && (steps - warm_up_steps) % window() == 0;
}

std::size_t PlanJudge::window() const {
  constexpr std::size_t most_doublings = 16;
  const std::size_t wanted = are_unequal_ ? judged_unequal_steps : judged_steps;
  const std::size_t period = std::max<std::size_t>(period_, 1);
  const std::size_t least = (wanted + period - 1) / period * period;
  return least << (changes_ < quick_changes ? 0 : std::min(changes_ - quick_changes + 1, most_doublings));
}

bool PlanJudge::is_wrong(const StepSeconds& measured) const {
  const double error = measured.step / expected_.step;
  return error > 1 + tolerated_error || 1 / error > 1 + tolerated_error;
}

void PlanJudge::change(const StepSeconds& expected) {
  expected_ = expected;
  ++changes_;
}

}  // namespace ranvier
