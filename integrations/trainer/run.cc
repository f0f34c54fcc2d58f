#include "integrations/trainer/run.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

#include "integrations/trainer/rank_state.h"
#include "integrations/trainer/run_settings.h"
#include "ranvier/error.h"

namespace ranvier::trainer {

Run::Run(const TrainSettings& settings, const Dataset& data, ModelTeam& team, Kept* kept)
    : settings_(settings),
      team_(team),
      comm_(team.replicas()),
      kept_(kept),
      ranks_(kept != nullptr ? kept->ranks : comm_.world()),
      workers_(kept != nullptr ? kept->workers : training_ranks(settings.sync, comm_.world())),
      plan_(settings, comm_.world()),
      identity_(identity_of(settings, data, ranks_)),
      task_(make_task(settings.model, data, settings.seed, team)),
      common_(task_->common_parameters()),
      evaluator_(*task_, team),
      shares_(comm_, settings.batch * settings.accumulate * workers_, training_ranks(settings.sync, comm_.world())),
      sampler_(task_->samples(), settings.batch * settings.accumulate, workers_, settings.seed),
      rate_(rate_of(settings, static_cast<double>(shares_.total()),
                    static_cast<double>(steps_of_epochs(settings, sampler_.steps_per_epoch())))),
      groups_(std::make_shared<replica::TeamPool>(comm_)),
      sync_(make_synchronizer(first_, 0)),
      unused_(dense_exchange(comm_)),
      buckets_(task_->parameters(), comm_, gradient_exchange(), settings.bucket_bytes),
      // A codec that corrects momentum puts it into the average.
      optimizer_(make_optimizer({.name = settings.optimizer,
                                 .momentum = gradient_exchange().momentum() > 0 ? 0 : settings.momentum,
                                 .weight_decay = settings.weight_decay},
                                buckets_.parameters(), buckets_.shapes())),
      pace_(Slowness(settings.unequal, static_cast<std::uint64_t>(comm_.rank()), settings.seed), settings.sample_ms) {
  check_optimizer(settings);
  exchange_gradients();
  last_step_ = std::min(settings.steps, steps_of_epochs(settings, sampler_.steps_per_epoch()));
  if (is_auto()) measure_for_policies();
  if (!settings.record) return;
  if (sync_->policy().goes_at_own_pace())
    throw Error(ErrorKind::usage, "--record writes what a step of all workers consists of, and --sync " +
                                      settings.sync + " has no such steps; record with --sync bsp");
  recorder_.emplace(buckets_.tensors().size(), team_);
  buckets_.record(&*recorder_);
}

TrainResult Run::run(const TrainEvents& events) {
  const bool goes_on = begin();
  if (goes_on && step_ > 0 && is_evaluation_due() && look_again(events)) return pause();

  while (step_ < last_step_ && !reached_target()) {
    const double loss = own_pace_ ? train_at_own_pace(next_evaluation()) : train_one_step();
    if (change_) take_up_change();
    if (is_plan_due()) judge_plan(events);
    if (own_pace_ && step_ < last_step_) judge_pace(events);
    if (speaks() && events.on_step) events.on_step(step_, last_step_, loss);
    if (is_first_choice_due() || (speeds_are_new_ && !is_evaluation_due() && is_choice_open())) choose_policy();
    if (is_evaluation_due() && look(events)) return pause();
  }
  if (result_.history.empty()) {  // resumed where it had ended
    evaluate();
    save(events);
  }
  bring_together();
  if (own_pace_) own_pace_->leave();
  return conclude();
}

// All together, behind a step at which that is due. True where they are to pause for others to join.
bool Run::look(const TrainEvents& events) {
  evaluate();
  if (is_choice_open()) choose_policy();
  if (speaks() && events.on_evaluation) events.on_evaluation(result_.history.back());
  if (is_epoch_end() || is_over()) save(events);
  return !is_over() && is_to_pause(events);
}

// Somebody may have been lost in the middle of it, or while the checkpoint was written.
bool Run::look_again(const TrainEvents& events) {
  if (result_.history.empty() || result_.history.back().step < step_) return look(events);
  if (is_epoch_end() || is_over()) save(events);
  return false;
}

// ---- When.

// The step after which the next one is due.
std::size_t Run::next_evaluation() const {
  const auto after = [this](std::size_t period) { return (step_ / period + 1) * period; };
  std::size_t next = std::min(last_step_, after(sampler_.steps_per_epoch()));
  if (settings_.evaluate_every > 0) next = std::min(next, after(settings_.evaluate_every));
  return next;
}

bool Run::reached_target() const {
  if (result_.history.empty()) return false;
  const Score& last = result_.history.back().test;
  return (settings_.target_accuracy && last.accuracy && *last.accuracy >= *settings_.target_accuracy) ||
         (settings_.target_loss && last.to_lower() <= *settings_.target_loss);
}

bool Run::is_evaluation_due() const {
  return step_ == last_step_ || is_epoch_end() ||
         (settings_.evaluate_every > 0 && step_ % settings_.evaluate_every == 0);
}

// ---- The result.

// Replicas that take steps of their own come here at different times. Who is ahead waits for the others, as it would
// for the next average, and all for one that is under way: this is no time for it to be ahead by.
void Run::evaluate() {
  if (!sync_->agreed()) {
    const auto mark = Account::begin(*sync_);
    sync_->wait();
    account_.add_traffic(mark, *sync_);
    comm_.barrier();
    account_.add_waiting(account_.add_time(mark));
  }
  result_.history.push_back(
      evaluator_.look(step_, seconds_before_ + account_.seconds(), *sync_, buckets_.parameters()));
  if (kept_ != nullptr) kept_->history = result_.history;
}

// Replicas that still differ at the end become one, which is what the result is about.
void Run::bring_together() {
  const auto mark = Account::begin(*sync_);
  if (!sync_->end(memory_of(buckets_.parameters()))) return;
  team_.align(common_);
  account_.end(mark, *sync_);
  const auto loss = result_.history.back().loss;
  result_.history.pop_back();
  evaluate();
  result_.history.back().loss = loss;
}

TrainResult Run::conclude() {
  const auto parameters = memory_of(buckets_.parameters());
  result_.threads = at::get_num_threads();
  result_.parameter_hash = hash_of(parameters);
  require_equal(comm_, result_.parameter_hash, "parameters after training");
  team_.require_aligned(common_);
  result_.parameter_hash = team_.fold(result_.parameter_hash);
  if (own_pace_) result_.groups = own_pace_->groups();
  account_.conclude(result_, team_.world());
  result_.plain_buckets = own_pace_ ? own_pace_->plain_buckets() : sync_->plain_buckets();
  result_.codec_state_bytes = own_pace_ ? own_pace_->state_bytes() : sync_->state_bytes();
  result_.shares = own_pace_ ? own_pace_->shares() : shares_.all();
  if (recorder_) stop_recording();  // it ended early
  const auto median = plan_.times().median(comm_);
  result_.median_step_seconds = median.step;
  result_.median_waiting_seconds = median.waiting;
  const auto mean = plan_.times().mean(comm_);
  result_.mean_step_seconds = mean.step;
  result_.mean_waiting_seconds = mean.waiting;
  result_.steps = step_;
  result_.samples_here = sampler_.before(step_) - sampler_.before(step_ - result_.steps_here);
  result_.steps_per_epoch = sampler_.steps_per_epoch();
  result_.parameters = team_.parameters(parameters.size(), common_);
  return std::move(result_);
}

}  // namespace ranvier::trainer
