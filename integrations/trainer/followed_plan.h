// The plan by which a run sends its gradients: what it says now, whether steps take as long as it predicted, and what
// takes its place where they do not.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "integrations/trainer/step_times.h"
#include "integrations/trainer/trainer.h"

namespace ranvier::trainer {

// How gradients are sent.
struct Sending {
  std::string compress = {};     // spec of an Exchange; empty: stays
  std::size_t bucket_bytes = 0;  // 0: stays
};

class FollowedPlan {
 public:
  // `settings` outlives this; of a policy that has neither a period nor workers at their own pace the plan is not
  // judged. `world`: of those that follow.
  FollowedPlan(const TrainSettings& settings, Rank world);

  // As the settings say until the plan changes.
  const Sending& sending() const { return now_; }
  // From now on.
  void send_by(const Sending&);

  void add_step(std::chrono::nanoseconds took, std::chrono::nanoseconds waited) { add_steps(1, took, waited); }
  // So many together: of workers at their own pace, what they took for the samples of these steps of everybody's.
  void add_steps(std::size_t count, std::chrono::nanoseconds took, std::chrono::nanoseconds waited);
  // Of the steps since the plan changed, or of those until it was left.
  const StepTimes& times() const { return times_; }

  // Whether there are as many steps behind it, or behind its last judgement, as it is judged by.
  bool is_due() const { return judge_.is_due(times_.count()); }
  // All ranks call while nothing is under way; they hear the same mean, decide alike and do what rank 0 says, as
  // `replan` has it. Nothing where the plan holds, else what the ranks have agreed on behind so many steps, by which
  // the communicator chooses algorithms already. `gradient_bytes`: of the model; `keeps_codec`: what the codec holds
  // must not be lost.
  std::optional<ChangedPlan> judge(std::size_t steps, Communicator&, const Replan& replan, double gradient_bytes,
                                   bool keeps_codec);
  // Of workers at their own pace, where all have stopped. They go by no algorithm and no bucket, so that there is
  // nothing to plan anew: of a plan that does not hold it is said why it is to be left.
  std::optional<ChangedPlan> judge_pace(std::size_t steps, Communicator&);
  // It is judged no more, and steps are no longer its own.
  void leave();

  // What changes have made other than the settings say, as parts of a checkpoint. Restoring gives how gradients are to
  // be sent; the communicator goes on with `tuning` then, and not with the plan that was found wrong.
  void save(std::vector<std::byte>& all) const;
  Sending restore(ConstBytes& kept, Communicator&, const std::string& tuning);

 private:
  const TrainSettings& settings_;
  PlanJudge judge_;  // its changes are also those before this run was resumed
  bool at_own_pace_ = false;
  bool is_left_ = false;
  Sending now_;
  StepTimes times_;
  std::size_t judged_ = 0;  // of them, of workers at their own pace
};

}  // namespace ranvier::trainer
