// One run of training on one rank: the loop of trainer.h, with all that it goes by. A file a subject: run.cc has the
// loop and its result, run_steps.cc what a step does, run_policy.cc how replicas are kept alike, run_members.cc how
// workers come and go, and run_state.cc what checkpoints keep.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "integrations/trainer/account.h"
#include "integrations/trainer/auto_policy.h"
#include "integrations/trainer/checkpoint.h"
#include "integrations/trainer/evaluator.h"
#include "integrations/trainer/followed_plan.h"
#include "integrations/trainer/gradient_buckets.h"
#include "integrations/trainer/learning_rate.h"
#include "integrations/trainer/model_team.h"
#include "integrations/trainer/optimizer.h"
#include "integrations/trainer/own_pace.h"
#include "integrations/trainer/pace.h"
#include "integrations/trainer/run_checkpoint.h"
#include "integrations/trainer/sampler.h"
#include "integrations/trainer/step_recorder.h"
#include "integrations/trainer/task.h"
#include "integrations/trainer/trainer.h"
#include "integrations/trainer/work_shares.h"
#include "ranvier/exchange.h"
#include "ranvier/synchronizer.h"
#include "replica/team_pool.h"

namespace ranvier::trainer {

class Run {
 public:
  // All ranks call, with the same settings and data; `settings`, `team` and `kept`, which may be null, outlive this.
  // Throws Error.
  Run(const TrainSettings& settings, const Dataset& data, ModelTeam& team, Kept* kept);
  TrainResult run(const TrainEvents& events);

 private:
  static constexpr std::size_t steps_to_measure = 10;  // before samples are first shared by speed, …
  static constexpr std::size_t few_steps = 3;          // … of --sync auto, where these leave no doubt, …
  static constexpr std::size_t steps_of_window = 32;   // … and after which speeds are looked at again

  static std::span<float> memory_of(at::Tensor& flat) {
    return {flat.data_ptr<float>(), static_cast<std::size_t>(flat.numel())};
  }

  // ---- The loop.
  bool speaks() const { return team_.world().rank() == 0; }
  bool is_auto() const { return settings_.sync == "auto"; }
  bool reached_target() const;
  bool is_over() const { return step_ == last_step_ || reached_target(); }
  bool is_epoch_end() const { return step_ % sampler_.steps_per_epoch() == 0; }
  bool is_evaluation_due() const;
  std::size_t next_evaluation() const;
  void evaluate();
  bool look(const TrainEvents& events);
  bool look_again(const TrainEvents& events);
  void bring_together();
  TrainResult conclude();

  // ---- Steps.
  // Of a step of everybody's.
  std::size_t all_samples() const { return shares_.total(); }
  double compute(std::span<const std::int64_t> chosen, std::uint64_t first, bool is_shared);
  double train_one_step();
  double train_at_own_pace(std::size_t stop);
  OwnPaceWorker own_pace_worker();
  bool is_window_over() const {
    return result_.steps_here == steps_to_measure || result_.steps_here % steps_of_window == 0;
  }
  void watch_speeds();
  void record(std::chrono::nanoseconds took, std::chrono::nanoseconds waited);
  void stop_recording();

  // ---- How replicas are kept alike.
  // One that averages nothing where each worker keeps its own gradients.
  Exchange& gradient_exchange() { return sync_->gradients() != nullptr ? *sync_->gradients() : *unused_; }
  const std::string& policy_in_use() const { return choice_.sync.empty() ? first_ : choice_.sync; }
  SynchronizerOptions options_of(const std::string& policy, std::size_t complete) const;
  OwnPaceStart own_pace_start() const;
  std::unique_ptr<Synchronizer> make_synchronizer(const std::string& policy, std::size_t complete);
  void begin_policy();
  void renew_synchronizer(const std::string& policy);
  // Periods begin anew at this step.
  void synchronize_by(const std::string& policy);
  void exchange_gradients();
  void choose_policy();
  void prepare(const std::string& policy);
  void take_up_change();
  void share_by(const PolicyChoice& choice);
  void adopt(const PolicyChoice& choice);
  // By which there has been no step that would tell anything.
  bool has_just_changed() const { return !result_.decisions.empty() && result_.decisions.back().in_use_from == step_; }
  bool is_first_choice_due() const {
    return is_auto() && choice_.sync.empty() && step_ < last_step_ &&
           (result_.steps_here == few_steps || result_.steps_here == steps_to_measure);
  }
  bool is_choice_open() const {
    return auto_ && !choice_.sync.empty() && !change_ && !has_just_changed() && !is_over();
  }
  bool is_plan_due() const { return plan_.is_due() && step_ < last_step_ && !own_pace_ && !recorder_; }
  void judge_plan(const TrainEvents& events);
  void judge_pace(const TrainEvents& events);
  void note(ChangedPlan changed, const TrainEvents& events);
  void measure_for_policies();
  void leave_plan();
  void send_by(const Sending& next);

  // ---- After a loss, or a pause for others to join.
  bool do_replicas_differ() const { return sync_->policy().averages_parameters() || sync_->policy().meets_peers(); }
  bool is_to_pause(const TrainEvents& events);
  TrainResult pause();
  static constexpr std::int64_t nothing_kept = -1;
  std::vector<std::int64_t> steps_kept();
  void go_on_from_kept(const std::vector<std::int64_t>& steps);
  void take_kept_history(Rank root);
  void keep(std::size_t step);

  // ---- Checkpoints.
  CheckpointMemory memory() { return {memory_of(buckets_.parameters()), memory_of(optimizer_->state())}; }
  bool begin();
  void follow(Communicator& comm, const std::string& tuning);
  void save(const TrainEvents& events);
  std::vector<std::byte> save_own();
  void restore_own(ConstBytes kept, const std::string& tuning);

  const TrainSettings& settings_;
  ModelTeam& team_;
  Communicator& comm_;  // of those that hold the same
  Kept* const kept_;
  const Rank ranks_;           // with which training began
  const std::size_t workers_;  // by which a step's samples are counted
  FollowedPlan plan_;
  const Identity identity_;
  const std::unique_ptr<Task> task_;
  const std::vector<at::Tensor> common_;  // to all parts of a model
  Evaluator evaluator_;
  WorkShares shares_;
  Sampler sampler_;
  const LearningRate rate_;
  const std::string first_ = is_auto() ? "bsp" : settings_.sync;  // the policy that it begins with
  const std::shared_ptr<replica::TeamPool> groups_;
  std::unique_ptr<Synchronizer> sync_;
  const std::unique_ptr<Exchange> unused_;
  GradientBuckets buckets_;
  const std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<OwnPaceTraining> own_pace_;  // of policies whose workers wait for nobody
  std::optional<AutoPolicy> auto_;             // of --sync auto, and of a plan that has been left, …
  PolicyChoice choice_;                        // … once it has decided, …
  std::optional<PolicyChoice> change_;         // … and what comes next, whose groups are being formed
  std::size_t watched_at_ = 0;                 // the step behind which all ranks' speeds were last looked at
  bool speeds_are_new_ = false;                // since the last choice
  std::optional<StepRecorder> recorder_;
  Pace pace_;

  std::size_t last_step_ = 0;
  std::size_t step_ = 0;  // completed
  double seconds_before_ = 0;
  Account account_;
  TrainResult result_;
};

}  // namespace ranvier::trainer
