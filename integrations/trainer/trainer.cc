#include "integrations/trainer/trainer.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/parts.h"
#include "integrations/trainer/account.h"
#include "integrations/trainer/auto_policy.h"
#include "integrations/trainer/evaluator.h"
#include "integrations/trainer/followed_plan.h"
#include "integrations/trainer/gradient_buckets.h"
#include "integrations/trainer/optimizer.h"
#include "integrations/trainer/own_pace.h"
#include "integrations/trainer/pace.h"
#include "integrations/trainer/rank_state.h"
#include "integrations/trainer/run_checkpoint.h"
#include "integrations/trainer/run_settings.h"
#include "integrations/trainer/sampler.h"
#include "integrations/trainer/task.h"
#include "integrations/trainer/work_shares.h"
#include "ranvier/error.h"
#include "ranvier/exchange.h"
#include "ranvier/synchronizer.h"

namespace ranvier::trainer {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

constexpr std::size_t steps_to_measure = 10;  // before samples are first shared by speed

std::span<float> memory_of(at::Tensor& flat) {
  return {flat.data_ptr<float>(), static_cast<std::size_t>(flat.numel())};
}

class Run {
 public:
  Run(const TrainSettings& settings, const Dataset& data, ModelTeam& team)
      : settings_(settings),
        team_(team),
        comm_(team.replicas()),
        plan_(settings),
        identity_(identity_of(settings, data, comm_.world())),
        terms_(terms_of(settings, data, comm_.world())),
        task_(make_task(settings.model, data, settings.seed, team)),
        common_(task_->common_parameters()),
        evaluator_(*task_, team),
        shares_(comm_, settings.batch * settings.accumulate, training_ranks(settings.sync, comm_.world())),
        sampler_(task_->samples(), settings.batch * settings.accumulate, training_ranks(settings.sync, comm_.world()),
                 settings.seed),
        rate_(rate_of(settings, static_cast<double>(shares_.total()),
                      static_cast<double>(settings.epochs * sampler_.steps_per_epoch()))),
        sync_(make_synchronizer(settings.sync == "auto" ? "bsp" : settings.sync)),
        unused_(dense_exchange(comm_)),
        buckets_(task_->parameters(), comm_, gradient_exchange(), settings.bucket_bytes),
        // A codec that corrects momentum puts it into the average.
        optimizer_(make_optimizer({.name = settings.optimizer,
                                   .momentum = gradient_exchange().momentum() > 0 ? 0 : settings.momentum,
                                   .weight_decay = settings.weight_decay},
                                  buckets_.parameters(), buckets_.shapes())),
        pace_(pace_of(settings, comm_.rank())) {
    last_step_ = std::min(settings.steps, settings.epochs * sampler_.steps_per_epoch());
    if (!settings.record) return;
    if (sync_->policy().server() || sync_->policy().meets_peers())
      throw Error(ErrorKind::usage, "--record writes what a step of all workers consists of, and --sync " +
                                        settings.sync + " has no such steps; record with --sync bsp");
    recorder_.emplace(buckets_.tensors().size());
    buckets_.record(&*recorder_);
  }

  TrainResult run(const TrainEvents& events) {
    require_equal_terms(team_.world(), terms_);
    begin();

    while (step_ < last_step_ && !reached_target()) {
      const double loss = own_pace_ ? train_at_own_pace(next_evaluation()) : train_one_step();
      if (is_plan_due()) judge_plan(events);
      if (speaks() && events.on_step) events.on_step(step_, last_step_, loss);
      if (is_auto() && choice_.sync.empty() && result_.steps_here == steps_to_measure && step_ < last_step_)
        choose_policy();
      if (!is_evaluation_due()) continue;
      evaluate();
      if (is_auto() && !choice_.sync.empty() && !is_over()) choose_policy();
      if (speaks() && events.on_evaluation) events.on_evaluation(result_.history.back());
      if (is_epoch_end() || is_over()) save();
    }
    if (result_.history.empty()) {  // resumed where it had ended
      evaluate();
      save();
    }
    bring_together();
    if (own_pace_) own_pace_->leave();
    return conclude();
  }

 private:
  // Of a step of everybody's.
  std::size_t all_samples() const { return shares_.total(); }

  // One that averages nothing where each worker keeps its own gradients.
  Exchange& gradient_exchange() { return sync_->gradients() != nullptr ? *sync_->gradients() : *unused_; }

  CheckpointMemory memory() { return {memory_of(buckets_.parameters()), memory_of(optimizer_->state())}; }

  // Rank 0's state becomes everybody's: its checkpoint's, or its first draw of the weights.
  void begin() {
    Progress progress = begin_from(settings_.resume, identity_, memory(), comm_);
    step_ = progress.step;
    seconds_before_ = progress.seconds;
    follow(progress.tuning);
    begin_policy();
    if (!settings_.resume.empty()) restore_own(progress.own, progress.tuning);
  }

  std::unique_ptr<Synchronizer> make_synchronizer(const std::string& policy) {
    return std::make_unique<Synchronizer>(
        comm_, SynchronizerOptions{.sync = policy,
                                   .compress = plan_.sending().compress,
                                   .place = settings_.place,
                                   .samples = static_cast<double>(shares_.own()),
                                   .run = {.steps_per_epoch = sampler_.steps_per_epoch(),
                                           .steps = settings_.epochs * sampler_.steps_per_epoch()}});
  }

  void begin_policy() {
    sync_->begin(memory_of(buckets_.parameters()), buckets_.shapes());
    own_pace_ = own_pace_training(comm_, sync_->policy(), own_pace_worker(),
                                  {.batch = settings_.batch * settings_.accumulate,
                                   .done = step_ * all_samples(),
                                   .seed = settings_.seed,
                                   .serve = settings_.serve});
  }

  // By what has been measured since the last time. Replicas meet, and go on by another policy if that is better.
  void choose_policy() {
    if (!auto_)
      auto_.emplace(comm_, sync_->node_of_rank(), static_cast<double>(all_samples()),
                    static_cast<std::size_t>(buckets_.parameters().numel()),
                    settings_.optimizer == "sgd" && settings_.weight_decay == 0);
    const auto reports = measure();
    const auto choice = auto_->choose(reports, choice_);
    const bool is_new = choice.sync != choice_.sync || choice.split_by_speed != choice_.split_by_speed;
    if (is_new) {
      result_.decisions.push_back(
          {.step = step_, .sync = choice.sync, .split_by_speed = choice.split_by_speed, .reason = choice.reason});
      adopt(choice);
    }
    if (choice_.split_by_speed && shares_.follow(speeds_of(reports)))
      sync_->set_samples(static_cast<double>(shares_.own()));
  }

  void adopt(const PolicyChoice& choice) {
    choice_ = choice;
    if (!choice.split_by_speed) shares_.even();
    renew_synchronizer(choice.sync);
  }

  void renew_synchronizer(const std::string& policy) {
    const auto mark = Account::begin(*sync_);
    sync_->end(rate_.at(static_cast<double>(step_)), memory_of(buckets_.parameters()));
    if (own_pace_) {
      own_pace_->leave();
      own_pace_.reset();
      comm_.barrier();  // all servers are gone before anybody asks new ones
    }
    // Equal gradients keep replicas equal only where what the optimizer remembers is.
    comm_.broadcast(memory_of(optimizer_->state()), 0);
    account_.add_traffic(mark, *sync_);
    auto before = std::exchange(sync_, make_synchronizer(policy));  // its exchange lives while buckets know it
    buckets_.exchange_by(gradient_exchange());
    before.reset();
    begin_policy();
  }

  // What was measured then decides as it did then, unless this run was given a table of its own.
  void follow(const std::string& tuning) {
    if (!settings_.tuning.rows().empty()) return comm_.follow(settings_.tuning);
    if (tuning.empty() || !comm_.options().tuning.empty()) return;
    comm_.follow(TuningTable::parse(tuning, "the tuning table of the checkpoint"));
  }

  // What its codecs hold back, its policy's state, its share of the samples and, where replicas differ, its own.
  std::vector<std::byte> save_own() {
    std::vector<std::byte> all;
    append_part(all, std::as_bytes(std::span(choice_.sync)));
    const std::array<std::byte, 1> split{std::byte{choice_.split_by_speed}};
    append_part(all, split);
    plan_.save(all);
    append_part(all, buckets_.save_state());
    append_part(all, sync_->save());
    const std::size_t share = shares_.own();
    append_part(all, std::as_bytes(std::span(&share, 1)));
    if (!sync_->parts_replicas()) return all;
    append_part(all, std::as_bytes(memory_of(buckets_.parameters())));
    append_part(all, std::as_bytes(memory_of(optimizer_->state())));
    return all;
  }
  void restore_own(ConstBytes kept, const std::string& tuning) {
    const ConstBytes policy = take_part(kept);
    std::array<std::byte, 1> split{};
    take_values(kept, std::span<std::byte>(split));
    if (!policy.empty())
      adopt({.sync = {reinterpret_cast<const char*>(policy.data()), policy.size()},
             .split_by_speed = split[0] != std::byte{0}});
    send_by(plan_.restore(kept, comm_, tuning));
    buckets_.restore_state(take_part(kept));
    sync_->restore(take_part(kept));
    std::size_t share = 0;
    take_values(kept, std::span(&share, 1));
    if (settings_.split_by_speed || choice_.split_by_speed) {
      shares_.restore(share);
      sync_->set_samples(static_cast<double>(share));
    }
    // Of a run whose replicas could not differ there is one state, which all have by now.
    if (!sync_->parts_replicas() || (kept.empty() && !sync_->policy().averages_parameters())) return;
    take_values(kept, memory_of(buckets_.parameters()));
    take_values(kept, memory_of(optimizer_->state()));
  }

  // The gradients of this worker's samples, in so many passes; the loss. `first`: as Pass has it.
  double compute(std::span<const std::int64_t> chosen, std::uint64_t first, bool is_shared) {
    pace_.begin(first / all_samples());
    buckets_.clear(is_shared);
    std::vector<Pass> passes(std::min(settings_.accumulate, chosen.size()));
    for (std::size_t number = 0; number < passes.size(); ++number) {
      const std::size_t from = chosen.size() * number / passes.size();
      const auto part = chosen.subspan(from, chosen.size() * (number + 1) / passes.size() - from);
      passes[number] = {.samples = part,
                        .share = static_cast<double>(part.size()) / static_cast<double>(chosen.size()),
                        .first = first + from};
    }
    const PassEvents events{.forward =
                                [this](std::size_t) {
                                  if (recorder_) recorder_->begin_forward();
                                },
                            .backward =
                                [this, last = passes.size() - 1](std::size_t number) {
                                  buckets_.expect_another_pass(number < last);
                                  if (number == last) pace_.before_backward();
                                  if (recorder_) recorder_->begin_backward();
                                }};
    const double mean = task_->train(passes, is_shared ? sync_->gradient_weight() : 1, events);
    pace_.end(chosen.size());
    evaluator_.add_loss(mean);
    return mean;
  }

  double train_one_step() {
    const auto mark = Account::begin(*sync_);
    const auto waited_for_parts = team_.waited();
    const auto sent_to_parts = team_.bytes_sent();
    const std::size_t first = shares_.before();
    const double loss =
        compute(sampler_.part(step_, first, shares_.own()), step_ * all_samples() + first, sync_->begin_step(step_));
    auto waited = buckets_.finish() + (team_.waited() - waited_for_parts);
    const double rate = rate_.at(static_cast<double>(step_));
    {
      const at::NoGradGuard no_grad;
      optimizer_->step(buckets_.parameters(), buckets_.gradients(), rate);
    }
    ++step_;
    ++result_.steps_here;
    const auto stepped = steady_clock::now();
    sync_->end_step(step_, rate, memory_of(buckets_.parameters()));
    team_.align(common_);
    waited += steady_clock::now() - stepped;
    account_.add_model_bytes(team_.bytes_sent() - sent_to_parts);
    if (settings_.split_by_speed && (step_ == steps_to_measure || is_epoch_end()) &&
        shares_.follow(speeds_of(measure())))
      sync_->set_samples(static_cast<double>(shares_.own()));

    account_.add_waiting(waited);
    const auto took = account_.end(mark, *sync_);
    if (recorder_)
      record(took, waited);
    else
      plan_.add_step(took, waited);
    return loss;
  }

  void record(nanoseconds took, nanoseconds waited) {
    recorder_->end_step(took, waited);
    if (recorder_->is_done() || step_ == last_step_) stop_recording();
  }
  void stop_recording() {
    buckets_.record(nullptr);
    result_.recorded = recorder_->finish(comm_, buckets_.tensors());
    recorder_.reset();
  }

  bool is_plan_due() const { return plan_.is_due() && step_ < last_step_ && !own_pace_ && !recorder_; }

  // Nothing is under way between two steps.
  void judge_plan(const TrainEvents& events) {
    auto changed = plan_.judge(step_, comm_, events.replan, gradient_exchange().momentum() > 0);
    if (!changed) return;
    send_by({changed->change.compress, changed->change.bucket_bytes});
    result_.changes.push_back(std::move(*changed));
    if (speaks() && events.on_change) events.on_change(result_.changes.back());
  }

  // From now on. What the codec before held back is lost.
  void send_by(const Sending& next) {
    const Sending before = plan_.sending();
    plan_.send_by(next);
    const Sending& now = plan_.sending();
    if (now.bucket_bytes != before.bucket_bytes) buckets_.cut(now.bucket_bytes);
    if (now.compress != before.compress) renew_synchronizer(choice_.sync.empty() ? settings_.sync : choice_.sync);
  }

  // Each worker at its own pace, until all together have done as many steps as `stop` of everybody's would be.
  double train_at_own_pace(std::size_t stop) {
    const auto mark = Account::begin(*sync_);
    const auto waited_before = own_pace_->waited();
    const std::uint64_t exchanges_before = own_pace_->exchanges();
    own_pace_->run(stop * all_samples());
    account_.add_waiting(own_pace_->waited() - waited_before);
    account_.add_rounds(own_pace_->exchanges() - exchanges_before, sync_->nodes() > 1);
    result_.steps_here += stop - step_;
    step_ = stop;
    // Of peers, replicas differ now.
    if (sync_->policy().meets_peers())
      sync_->end_step(step_, rate_.at(static_cast<double>(step_)), memory_of(buckets_.parameters()));
    account_.end(mark, *sync_);
    return evaluator_.mean_loss();
  }
  OwnPaceWorker own_pace_worker() {
    return {.compute =
                [this](std::uint64_t first, std::uint64_t samples) {
                  if (samples > 0)
                    compute(sampler_.from(first, samples), first, false);
                  else
                    buckets_.clear(false);
                },
            // The servers keep no momentum, since asynchrony adds some (Mitliagkas et al., "Asynchrony begets
            // Momentum", 2016): steps are as much longer as momentum would have made them by then.
            .server_rate =
                [this](std::uint64_t done) {
                  const double step = static_cast<double>(done) / static_cast<double>(all_samples());
                  return rate_.at(step) * (1 - std::pow(settings_.momentum, step + 1)) / (1 - settings_.momentum);
                },
            .step =
                [this](std::uint64_t done) {
                  const at::NoGradGuard no_grad;
                  optimizer_->step(buckets_.parameters(), buckets_.gradients(),
                                   rate_.at(static_cast<double>(done) / static_cast<double>(all_samples())));
                },
            .speeds = [this] { return speeds_of(measure()); },
            .gradients = memory_of(buckets_.gradients()),
            .parameters = memory_of(buckets_.parameters())};
  }

  // How fast every rank has been since this was last asked, or before, if it has done nothing since.
  std::vector<PaceReport> measure() {
    if (const PaceReport now = pace_.report(); now.seconds_per_sample > 0) last_report_ = now;
    return collect(comm_, last_report_);
  }

  // The step after which the next one is due.
  std::size_t next_evaluation() const {
    const auto after = [this](std::size_t period) { return (step_ / period + 1) * period; };
    std::size_t next = std::min(last_step_, after(sampler_.steps_per_epoch()));
    if (settings_.evaluate_every > 0) next = std::min(next, after(settings_.evaluate_every));
    return next;
  }

  // Replicas that still differ at the end become one, which is what the result is about.
  void bring_together() {
    const auto mark = Account::begin(*sync_);
    if (!sync_->end(rate_.at(static_cast<double>(step_)), memory_of(buckets_.parameters()))) return;
    team_.align(common_);
    account_.end(mark, *sync_);
    const double loss = result_.history.back().loss;
    result_.history.pop_back();
    evaluate();
    result_.history.back().loss = loss;
  }

  void evaluate() {
    result_.history.push_back(
        evaluator_.look(step_, seconds_before_ + account_.seconds(), *sync_, buckets_.parameters()));
  }

  bool speaks() const { return team_.world().rank() == 0; }
  bool is_auto() const { return settings_.sync == "auto"; }

  bool reached_target() const {
    if (result_.history.empty()) return false;
    const Score& last = result_.history.back().test;
    return (settings_.target_accuracy && last.accuracy && *last.accuracy >= *settings_.target_accuracy) ||
           (settings_.target_loss && last.to_lower() <= *settings_.target_loss);
  }
  bool is_over() const { return step_ == last_step_ || reached_target(); }
  bool is_epoch_end() const { return step_ % sampler_.steps_per_epoch() == 0; }
  bool is_evaluation_due() const {
    return step_ == last_step_ || is_epoch_end() ||
           (settings_.evaluate_every > 0 && step_ % settings_.evaluate_every == 0);
  }

  void save() {
    if (settings_.save.empty()) return;
    save_to(settings_.save, identity_, memory(),
            {.step = step_,
             .seconds = seconds_before_ + account_.seconds(),
             .tuning = comm_.tuning().text(),
             .own = save_own()},
            comm_);
  }

  TrainResult conclude() {
    const auto parameters = memory_of(buckets_.parameters());
    result_.parameter_hash = hash_of(parameters);
    require_equal(comm_, result_.parameter_hash, "parameters after training");
    team_.require_aligned(common_);
    result_.parameter_hash = team_.fold(result_.parameter_hash);
    if (own_pace_) result_.groups = own_pace_->groups();
    account_.conclude(result_, team_.world());
    result_.plain_buckets = sync_->plain_buckets();
    result_.codec_state_bytes = sync_->state_bytes();
    result_.shares = own_pace_ ? own_pace_->shares() : shares_.all();
    if (recorder_) stop_recording();  // it ended early
    const auto median = plan_.times().median(comm_);
    result_.median_step_seconds = median.step;
    result_.median_waiting_seconds = median.waiting;
    result_.steps = step_;
    result_.steps_per_epoch = sampler_.steps_per_epoch();
    result_.parameters = team_.parameters(parameters.size(), common_);
    return std::move(result_);
  }

  const TrainSettings& settings_;
  ModelTeam& team_;
  Communicator& comm_;  // of those that hold the same
  FollowedPlan plan_;
  const Identity identity_;
  const Identity terms_;
  const std::unique_ptr<Task> task_;
  const std::vector<at::Tensor> common_;  // to all parts of a model
  Evaluator evaluator_;
  WorkShares shares_;
  Sampler sampler_;
  const LearningRate rate_;
  std::unique_ptr<Synchronizer> sync_;
  const std::unique_ptr<Exchange> unused_;
  GradientBuckets buckets_;
  const std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<OwnPaceTraining> own_pace_;  // of policies whose workers wait for nobody
  std::optional<AutoPolicy> auto_;             // of --sync auto, once it has measured …
  PolicyChoice choice_;                        // … and decided
  PaceReport last_report_;
  std::optional<StepRecorder> recorder_;
  Pace pace_;

  std::size_t last_step_ = 0;
  std::size_t step_ = 0;  // completed
  double seconds_before_ = 0;
  Account account_;
  TrainResult result_;
};

}  // namespace

TrainResult train(const TrainSettings& settings, const Dataset& data, Communicator& comm, const TrainEvents& events) {
  at::set_num_threads(settings.threads);
  at::manual_seed(settings.seed);
  std::optional<ModelTeam> team;  // outlives a failure: its groups are told why before they are left
  const auto abort = [&](const std::string& reason) { team ? team->abort(reason) : comm.abort(reason); };
  try {
    team.emplace(comm, parse_division(settings.parallel));
    return Run(settings, data, *team).run(events);
  } catch (const c10::Error& problem) {
    abort("rank " + std::to_string(comm.rank()) + " failed in torch");
    throw Error(ErrorKind::internal, std::string("torch failed: ") + problem.what_without_backtrace());
  } catch (const Error& problem) {
    const Error known = team ? team->in_words_of_all(problem) : problem;
    abort(known.what());  // no news to the others if it came from them
    throw known;
  } catch (const std::exception& problem) {
    abort(problem.what());
    throw;
  }
}

}  // namespace ranvier::trainer
