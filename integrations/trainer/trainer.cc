#include "integrations/trainer/trainer.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <numbers>
#include <numeric>
#include <optional>

#include "base/parts.h"
#include "integrations/trainer/async_training.h"
#include "integrations/trainer/checkpoint.h"
#include "integrations/trainer/gradient_buckets.h"
#include "integrations/trainer/model.h"
#include "integrations/trainer/optimizer.h"
#include "integrations/trainer/pace.h"
#include "integrations/trainer/rank_state.h"
#include "integrations/trainer/sampler.h"
#include "integrations/trainer/samples.h"
#include "integrations/trainer/step_times.h"
#include "ranvier/error.h"
#include "ranvier/exchange.h"
#include "ranvier/synchronizer.h"

namespace ranvier::trainer {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

constexpr std::size_t steps_to_measure = 10;  // before samples are first shared by speed

double in_seconds(nanoseconds time) { return std::chrono::duration<double>(time).count(); }

std::span<float> memory_of(at::Tensor& flat) {
  return {flat.data_ptr<float>(), static_cast<std::size_t>(flat.numel())};
}

Identity identity_of(const TrainSettings& settings, const Dataset& data, Rank world) {
  return {{"--model", settings.model},
          {"--batch", std::to_string(settings.batch)},
          {"--epochs", std::to_string(settings.epochs)},
          {"--lr", std::to_string(settings.learning_rate)},
          {"--optimizer", settings.optimizer},
          {"--sync", settings.sync},
          {"--place", settings.place},
          {"--seed", std::to_string(settings.seed)},
          {"workers", std::to_string(world)},
          {"data of checksum", data.fingerprint}};
}

class Run {
 public:
  Run(const TrainSettings& settings, const Dataset& data, Communicator& comm)
      : settings_(settings),
        comm_(comm),
        identity_(identity_of(settings, data, comm.world())),
        train_(data.train, data),
        test_(data.test, data),
        normalize_(data.train.pixels),
        sampler_(data.train.count(), settings.batch, static_cast<std::size_t>(comm.world()), settings.seed),
        sync_(comm, {.sync = settings.sync,
                     .compress = settings.compress,
                     .place = settings.place,
                     .samples = static_cast<double>(settings.batch),
                     .run = {.steps_per_epoch = sampler_.steps_per_epoch(),
                             .steps = settings.epochs * sampler_.steps_per_epoch()}}),
        unused_(dense_exchange(comm)),
        model_(make_seeded_model(settings, data)),
        buckets_(model_->parameters(), comm, gradient_exchange(), settings.bucket_bytes),
        // A codec that corrects momentum puts it into the average.
        optimizer_(make_optimizer({.name = settings.optimizer,
                                   .momentum = gradient_exchange().momentum() > 0 ? 0 : settings.momentum,
                                   .weight_decay = settings.weight_decay},
                                  buckets_.parameters(), buckets_.shapes())),
        pace_({.speed = speed_of(settings, comm.rank()),
               .jitter_share = settings.jitter_share,
               .jitter_factor = settings.jitter_factor,
               .seed = settings.seed * 1'000'003 + static_cast<std::uint64_t>(comm.rank())}),
        shares_(static_cast<std::size_t>(comm.world()), settings.batch) {
    last_step_ = std::min(settings.steps, settings.epochs * sampler_.steps_per_epoch());
    if (!settings.record) return;
    if (sync_.policy().server())
      throw Error(ErrorKind::usage, "--record writes what a step of all workers consists of, and --sync " +
                                        settings.sync + " has no such steps; record with --sync bsp");
    recorder_.emplace(buckets_.tensors().size());
    buckets_.record(&*recorder_);
  }

  TrainResult run(const TrainEvents& events) {
    std::uint64_t same = 0;
    for (const auto& [name, value] : identity_)
      for (const char letter : name + "=" + value + ";") same = same * 31 + static_cast<unsigned char>(letter);
    require_equal(comm_, same, "settings or data");
    begin();

    const bool speaks = comm_.rank() == 0;
    while (step_ < last_step_ && !reached_target()) {
      const double loss = async_ ? train_by_server(next_evaluation()) : train_one_step();
      if (!settings_.tuning.rows().empty() && result_.steps_here == StepTimes::warm_up + judged_steps) judge_plan();
      if (speaks && events.on_step) events.on_step(step_, last_step_, loss);
      if (!is_evaluation_due()) continue;
      evaluate();
      if (speaks && events.on_evaluation) events.on_evaluation(result_.history.back());
      if (is_epoch_end() || is_over()) save();
    }
    if (result_.history.empty()) {  // resumed where it had ended
      evaluate();
      save();
    }
    bring_together();
    if (async_) async_->leave();
    return conclude();
  }

 private:
  // Of a step of everybody's.
  std::size_t all_samples() const { return settings_.batch * shares_.size(); }

  // One that averages nothing where each worker keeps its own gradients.
  Exchange& gradient_exchange() { return sync_.gradients() != nullptr ? *sync_.gradients() : *unused_; }

  static double speed_of(const TrainSettings& settings, Rank rank) {
    const auto at = static_cast<std::size_t>(rank);
    return at < settings.speeds.size() ? settings.speeds[at] : 1;
  }

  static std::unique_ptr<Model> make_seeded_model(const TrainSettings& settings, const Dataset& data) {
    at::manual_seed(settings.seed);
    return make_model(settings.model, {.rows = static_cast<std::int64_t>(data.rows),
                                       .columns = static_cast<std::int64_t>(data.columns),
                                       .classes = static_cast<std::int64_t>(data.classes)});
  }

  // Rank 0's state becomes everybody's: its checkpoint's, or its first draw of the weights.
  void begin() {
    std::array<double, 3> progress{};  // step, seconds, and how long the text of the tuning table is
    std::string tuning;
    std::vector<std::vector<std::byte>> kept;
    if (!settings_.resume.empty() && comm_.rank() == 0) {
      Checkpoint checkpoint = load_checkpoint(settings_.resume);
      check_identity(settings_.resume, checkpoint, identity_);
      if (checkpoint.parameters.size() != memory_of(buckets_.parameters()).size())
        throw Error(ErrorKind::config, "cannot resume from " + settings_.resume.string() + ": it holds " +
                                           std::to_string(checkpoint.parameters.size()) +
                                           " parameters, this model has " +
                                           std::to_string(memory_of(buckets_.parameters()).size()));
      std::copy(checkpoint.parameters.begin(), checkpoint.parameters.end(), memory_of(buckets_.parameters()).begin());
      const auto memory = memory_of(optimizer_->state());
      if (checkpoint.momentum.size() != memory.size())
        throw Error(ErrorKind::config,
                    "cannot resume from " + settings_.resume.string() + ": it is of another --optimizer");
      std::copy(checkpoint.momentum.begin(), checkpoint.momentum.end(), memory.begin());
      tuning = checkpoint.tuning;
      progress = {static_cast<double>(checkpoint.step), checkpoint.seconds, static_cast<double>(tuning.size())};
      kept = std::move(checkpoint.rank_state);
    }
    comm_.broadcast(progress, 0);
    comm_.broadcast(memory_of(buckets_.parameters()), 0);
    comm_.broadcast(memory_of(optimizer_->state()), 0);
    step_ = static_cast<std::size_t>(progress[0]);
    seconds_before_ = progress[1];
    follow(std::move(tuning), static_cast<std::size_t>(progress[2]));
    sync_.begin(memory_of(buckets_.parameters()), buckets_.shapes());
    if (sync_.policy().server())
      async_.emplace(comm_, sync_.policy(), async_worker(), settings_.batch, step_ * all_samples());
    if (!settings_.resume.empty()) restore_own(hand_out_states(comm_, std::move(kept)));
  }

  // What was measured then decides as it did then, unless this run was given a table of its own.
  void follow(std::string tuning, std::size_t length) {
    if (!settings_.tuning.rows().empty()) return comm_.follow(settings_.tuning);
    if (length == 0 || !comm_.options().tuning.empty()) return;
    tuning.resize(length);
    comm_.broadcast(TypedSpan(tuning.data(), length, DType::u8), 0);
    comm_.follow(TuningTable::parse(tuning, "the tuning table of the checkpoint"));
  }

  // What its codecs hold back, its policy's state, its share of the samples and, where replicas differ, its own.
  std::vector<std::byte> save_own() {
    std::vector<std::byte> all;
    append_part(all, buckets_.save_state());
    append_part(all, sync_.save());
    append_part(all, std::as_bytes(std::span(&shares_[static_cast<std::size_t>(comm_.rank())], 1)));
    if (!sync_.policy().averages_parameters()) return all;
    append_part(all, std::as_bytes(memory_of(buckets_.parameters())));
    append_part(all, std::as_bytes(memory_of(optimizer_->state())));
    return all;
  }
  void restore_own(ConstBytes kept) {
    buckets_.restore_state(take_part(kept));
    sync_.restore(take_part(kept));
    std::size_t share = 0;
    take_values(kept, std::span(&share, 1));
    if (settings_.split_by_speed) share_anew(share);
    if (!sync_.policy().averages_parameters()) return;
    take_values(kept, memory_of(buckets_.parameters()));
    take_values(kept, memory_of(optimizer_->state()));
  }

  // The gradients of this worker's samples; the loss.
  double compute(std::span<const std::int64_t> chosen, bool is_shared) {
    pace_.begin();
    const auto index =
        at::from_blob(const_cast<std::int64_t*>(chosen.data()), {static_cast<std::int64_t>(chosen.size())}, at::kLong);
    const auto images = normalize_(train_.images.index_select(0, index));
    const auto labels = train_.labels.index_select(0, index).to(at::kLong);
    buckets_.clear(is_shared);
    if (recorder_) recorder_->begin_forward();
    const auto loss = at::cross_entropy_loss(model_->forward(images), labels);
    pace_.before_backward();
    if (recorder_) recorder_->begin_backward();
    const double weight = is_shared ? sync_.gradient_weight() : 1;
    (weight == 1 ? loss : loss * weight).backward();
    pace_.end(chosen.size());
    const double value = loss.item<double>();
    loss_sum_ += value;
    ++loss_count_;
    return value;
  }

  double train_one_step() {
    const auto started = steady_clock::now();
    const auto traffic_before = sync_.traffic();
    const auto place = shares_.begin() + comm_.rank();
    const double loss = compute(sampler_.part(step_, std::accumulate(shares_.begin(), place, std::size_t{0}), *place),
                                sync_.begin_step(step_));
    auto waited = buckets_.finish();
    const double rate = learning_rate();
    {
      const at::NoGradGuard no_grad;
      optimizer_->step(buckets_.parameters(), buckets_.gradients(), rate);
    }
    ++step_;
    ++result_.steps_here;
    const auto stepped = steady_clock::now();
    sync_.end_step(step_, rate, memory_of(buckets_.parameters()));
    waited += steady_clock::now() - stepped;
    if (settings_.split_by_speed && (step_ == steps_to_measure || is_epoch_end())) measure_speeds();

    count(traffic_before);
    exposed_ += waited;
    const auto took = steady_clock::now() - started;
    spent_ += took;
    if (recorder_)
      record(took, waited);
    else
      step_times_.add(took, waited);
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

  // All ranks hear the same mean and decide alike. Nothing is under way between two steps.
  void judge_plan() {
    if (step_times_.median(comm_).step <= (1 + tolerated_error) * settings_.planned_step_seconds) return;
    comm_.follow({});
    result_.dropped_tuning_at = step_;
  }

  // Each worker at its own pace, until all together have done as many steps as `stop` of everybody's would be.
  double train_by_server(std::size_t stop) {
    const auto started = steady_clock::now();
    const auto traffic_before = sync_.traffic();
    const auto waited_before = async_->waited();
    const std::uint64_t pushes_before = async_->pushes();
    async_->run(stop * all_samples());
    exposed_ += async_->waited() - waited_before;
    (sync_.nodes() > 1 ? result_.rounds_between : result_.rounds_inside) += async_->pushes() - pushes_before;
    result_.steps_here += stop - step_;
    step_ = stop;
    count(traffic_before);
    spent_ += steady_clock::now() - started;
    return loss_sum_ / static_cast<double>(std::max<std::size_t>(loss_count_, 1));
  }
  AsyncWorker async_worker() {
    return {.compute =
                [this](std::uint64_t first, std::uint64_t samples) {
                  if (samples > 0)
                    compute(sampler_.from(first, samples), false);
                  else
                    buckets_.clear(false);
                },
            // The servers keep no momentum, since asynchrony adds some (Mitliagkas et al., "Asynchrony begets
            // Momentum", 2016): steps are longer instead.
            .rate =
                [this](std::uint64_t done) {
                  return learning_rate(static_cast<double>(done) / static_cast<double>(all_samples())) /
                         (1 - settings_.momentum);
                },
            .speeds = [this] { return measured_speeds(); },
            .gradients = memory_of(buckets_.gradients()),
            .parameters = memory_of(buckets_.parameters())};
  }

  // The step after which the next one is due.
  std::size_t next_evaluation() const {
    const auto after = [this](std::size_t period) { return (step_ / period + 1) * period; };
    std::size_t next = std::min(last_step_, after(sampler_.steps_per_epoch()));
    if (settings_.evaluate_every > 0) next = std::min(next, after(settings_.evaluate_every));
    return next;
  }

  void count(const SyncTraffic& before) {
    const SyncTraffic now = sync_.traffic();
    result_.bytes_inside += static_cast<double>(now.bytes_inside - before.bytes_inside);
    result_.bytes_between += static_cast<double>(now.bytes_between - before.bytes_between);
    result_.rounds_inside += now.rounds_inside - before.rounds_inside;
    result_.rounds_between += now.rounds_between - before.rounds_between;
  }

  // Replicas that still differ at the end become one, which is what the result is about.
  void bring_together() {
    const auto started = steady_clock::now();
    const auto traffic_before = sync_.traffic();
    if (!sync_.end(learning_rate(), memory_of(buckets_.parameters()))) return;
    count(traffic_before);
    spent_ += steady_clock::now() - started;
    const double loss = result_.history.back().loss;
    result_.history.pop_back();
    evaluate();
    result_.history.back().loss = loss;
  }

  // Samples a second, by rank, since they were last asked for.
  std::vector<double> measured_speeds() {
    const std::array<double, 1> own{1 / std::max(pace_.seconds_per_sample(), 1e-12)};
    std::vector<double> speeds(shares_.size());
    comm_.all_gather(own, speeds);
    return speeds;
  }

  // Workers that have become slower or faster get fewer or more of each step's samples from now on.
  void measure_speeds() {
    auto speeds = measured_speeds();
    if (!speeds_.empty() && !have_drifted(speeds_, speeds)) return;
    speeds_ = std::move(speeds);
    shares_ = share_by_speed(settings_.batch * shares_.size(), speeds_);
    sync_.set_samples(static_cast<double>(shares_[static_cast<std::size_t>(comm_.rank())]));
  }

  // As a checkpoint has it: every rank calls with its own.
  void share_anew(std::size_t mine) {
    const std::array<std::int64_t, 1> own{static_cast<std::int64_t>(mine)};
    std::vector<std::int64_t> all(shares_.size());
    comm_.all_gather(own, all);
    shares_.assign(all.begin(), all.end());
    sync_.set_samples(static_cast<double>(mine));
  }

  // Half a cosine from the first rate to 0 over all epochs (Loshchilov and Hutter, arXiv:1608.03983, without restarts).
  double learning_rate() const { return learning_rate(static_cast<double>(step_)); }
  double learning_rate(double step) const {
    const auto all = static_cast<double>(settings_.epochs * sampler_.steps_per_epoch());
    return settings_.learning_rate / 2 * (1 + std::cos(std::numbers::pi * step / all));
  }

  // Every worker looks at its share of the test samples, with the mean of all replicas.
  void evaluate() {
    const at::NoGradGuard no_grad;
    const auto own = sync_.agreed() ? at::Tensor() : buckets_.parameters().clone();
    sync_.mean(memory_of(buckets_.parameters()));
    constexpr std::int64_t piece = 500;
    const std::int64_t total = test_.images.size(0);
    const std::int64_t begin = total * comm_.rank() / comm_.world();
    const std::int64_t end = total * (comm_.rank() + 1) / comm_.world();
    std::array<double, 4> sums{0, 0, loss_sum_, static_cast<double>(loss_count_)};
    for (std::int64_t at = begin; at < end; at += piece) {
      const std::int64_t size = std::min(piece, end - at);
      const auto labels = test_.labels.narrow(0, at, size).to(at::kLong);
      const auto scores = model_->forward(normalize_(test_.images.narrow(0, at, size)));
      sums[0] += scores.argmax(1).eq(labels).sum().item<double>();
      sums[1] += at::cross_entropy_loss(scores, labels).item<double>() * static_cast<double>(size);
    }
    comm_.all_reduce(sums);
    if (own.defined()) buckets_.parameters().copy_(own);
    loss_sum_ = 0;
    loss_count_ = 0;
    result_.history.push_back({.step = step_,
                               .seconds = seconds_before_ + in_seconds(spent_),
                               .loss = sums[2] / std::max(sums[3], 1.0),
                               .test_loss = sums[1] / static_cast<double>(total),
                               .accuracy = sums[0] / static_cast<double>(total)});
  }

  bool reached_target() const {
    return settings_.target_accuracy && !result_.history.empty() &&
           result_.history.back().accuracy >= *settings_.target_accuracy;
  }
  bool is_over() const { return step_ == last_step_ || reached_target(); }
  bool is_epoch_end() const { return step_ % sampler_.steps_per_epoch() == 0; }
  bool is_evaluation_due() const {
    return step_ == last_step_ || is_epoch_end() ||
           (settings_.evaluate_every > 0 && step_ % settings_.evaluate_every == 0);
  }

  void save() {
    if (settings_.save.empty()) return;
    auto rank_state = collect_states(comm_, save_own());
    if (comm_.rank() != 0) return;
    const auto parameters = memory_of(buckets_.parameters());
    const auto momentum = memory_of(optimizer_->state());
    save_checkpoint(settings_.save, {.identity = identity_,
                                     .step = step_,
                                     .seconds = seconds_before_ + in_seconds(spent_),
                                     .tuning = comm_.tuning().text(),
                                     .parameters = {parameters.begin(), parameters.end()},
                                     .momentum = {momentum.begin(), momentum.end()},
                                     .rank_state = std::move(rank_state)});
  }

  TrainResult conclude() {
    const auto parameters = memory_of(buckets_.parameters());
    result_.parameter_hash = hash_of(parameters);
    require_equal(comm_, result_.parameter_hash, "parameters after training");
    std::array<double, 3> means{result_.bytes_inside, result_.bytes_between,
                                in_seconds(exposed_) / std::max(in_seconds(spent_), 1e-9)};
    comm_.all_reduce(means, {.op = ReduceOp::average});
    result_.bytes_inside = means[0];
    result_.bytes_between = means[1];
    result_.bytes_sent_per_worker = means[0] + means[1];
    result_.exposed_communication_share = means[2];
    result_.plain_buckets = sync_.plain_buckets();
    result_.codec_state_bytes = sync_.state_bytes();
    result_.shares = async_ ? async_->shares() : shares_;
    if (async_) result_.groups = async_->groups();
    if (recorder_) stop_recording();  // it ended early
    const auto median = step_times_.median(comm_);
    result_.median_step_seconds = median.step;
    result_.median_waiting_seconds = median.waiting;
    result_.steps = step_;
    result_.steps_per_epoch = sampler_.steps_per_epoch();
    result_.seconds = in_seconds(spent_);
    result_.parameters = parameters.size();
    return std::move(result_);
  }

  const TrainSettings& settings_;
  Communicator& comm_;
  const Identity identity_;
  const Samples train_;
  const Samples test_;
  const Normalization normalize_;
  Sampler sampler_;
  Synchronizer sync_;
  const std::unique_ptr<Exchange> unused_;
  const std::unique_ptr<Model> model_;
  GradientBuckets buckets_;
  const std::unique_ptr<Optimizer> optimizer_;
  std::optional<AsyncTraining> async_;  // of policies with parameter servers
  std::optional<StepRecorder> recorder_;
  StepTimes step_times_;
  Pace pace_;
  std::vector<std::size_t> shares_;  // by rank: samples of a step
  std::vector<double> speeds_;       // by rank: samples a second, when shares were last set

  std::size_t last_step_ = 0;
  std::size_t step_ = 0;  // completed
  double seconds_before_ = 0;
  nanoseconds spent_{};
  nanoseconds exposed_{};
  double loss_sum_ = 0;
  std::size_t loss_count_ = 0;
  TrainResult result_;
};

}  // namespace

TrainResult train(const TrainSettings& settings, const Dataset& data, Communicator& comm, const TrainEvents& events) {
  at::set_num_threads(settings.threads);
  try {
    return Run(settings, data, comm).run(events);
  } catch (const c10::Error& problem) {
    comm.abort("rank " + std::to_string(comm.rank()) + " failed in torch");
    throw Error(ErrorKind::internal, std::string("torch failed: ") + problem.what_without_backtrace());
  } catch (const std::exception& problem) {
    comm.abort(problem.what());  // no news to the others if it came from them
    throw;
  }
}

}  // namespace ranvier::trainer
