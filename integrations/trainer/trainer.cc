#include "integrations/trainer/trainer.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <numbers>

#include "integrations/trainer/checkpoint.h"
#include "integrations/trainer/gradient_buckets.h"
#include "integrations/trainer/model.h"
#include "integrations/trainer/sampler.h"
#include "ranvier/error.h"
#include "ranvier/exchange.h"

namespace ranvier::trainer {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

double in_seconds(nanoseconds time) { return std::chrono::duration<double>(time).count(); }

std::span<float> memory_of(at::Tensor& flat) {
  return {flat.data_ptr<float>(), static_cast<std::size_t>(flat.numel())};
}

// FNV-1a, 64 bits: tells apart any two sets of parameters that a broken exchange is likely to leave.
std::uint64_t hash_of(std::span<const float> values) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const auto byte : std::as_bytes(values)) hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3;
  return hash;
}

// Throws Error{mismatch} naming the first rank whose `mine` is another than rank 0's.
void require_equal(Communicator& comm, std::uint64_t mine, const std::string& what) {
  const std::array<std::int64_t, 1> own{static_cast<std::int64_t>(mine)};
  std::vector<std::int64_t> all(static_cast<std::size_t>(comm.world()));
  comm.all_gather(own, all);
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw Error(ErrorKind::mismatch, "rank " + std::to_string(rank) + " has other " + what + " than rank 0",
                  static_cast<Rank>(rank));
}

// Images and labels as tensors that share the data set's memory.
struct Samples {
  at::Tensor images;  // n x 1 x rows x columns, bytes
  at::Tensor labels;  // n, bytes

  Samples(const LabelledImages& source, const Dataset& data)
      : images(at::from_blob(const_cast<std::uint8_t*>(source.pixels.data()),
                             {static_cast<std::int64_t>(source.count()), 1, static_cast<std::int64_t>(data.rows),
                              static_cast<std::int64_t>(data.columns)},
                             at::kByte)),
        labels(at::from_blob(const_cast<std::uint8_t*>(source.labels.data()),
                             {static_cast<std::int64_t>(source.count())}, at::kByte)) {}
};

// Mean and deviation of the training pixels, as torchvision's Normalize takes them: 0.286 and 0.353 for Fashion-MNIST.
struct Normalization {
  float scale;
  float shift;

  explicit Normalization(const std::vector<std::uint8_t>& pixels) {
    std::array<std::uint64_t, 256> counts{};
    for (const auto pixel : pixels) ++counts[pixel];
    double sum = 0;
    double squares = 0;
    for (std::size_t value = 0; value < counts.size(); ++value) {
      sum += static_cast<double>(counts[value]) * static_cast<double>(value);
      squares += static_cast<double>(counts[value]) * static_cast<double>(value * value);
    }
    const double mean = sum / static_cast<double>(pixels.size());
    const double deviation = std::sqrt(std::max(squares / static_cast<double>(pixels.size()) - mean * mean, 1.0));
    scale = static_cast<float>(1 / deviation);
    shift = static_cast<float>(-mean / deviation);
  }
  at::Tensor operator()(const at::Tensor& pixels) const { return pixels.to(at::kFloat).mul_(scale).add_(shift); }
};

Identity identity_of(const TrainSettings& settings, const Dataset& data, Rank world) {
  return {{"--model", settings.model},
          {"--batch", std::to_string(settings.batch)},
          {"--epochs", std::to_string(settings.epochs)},
          {"--lr", std::to_string(settings.learning_rate)},
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
        exchange_(make_exchange(settings.compress, comm)),
        model_(make_seeded_model(settings, data)),
        buckets_(model_->parameters(), comm, *exchange_, settings.bucket_bytes),
        momentum_(at::zeros_like(buckets_.parameters())) {
    last_step_ = std::min(settings.steps, settings.epochs * sampler_.steps_per_epoch());
    if (!settings.record) return;
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
      const double loss = train_one_step();
      if (!settings_.tuning.rows().empty() && result_.steps_here == StepRecorder::warm_up + judged_steps) judge_plan();
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
    return conclude();
  }

 private:
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
      std::copy(checkpoint.momentum.begin(), checkpoint.momentum.end(), memory_of(momentum_).begin());
      tuning = checkpoint.tuning;
      progress = {static_cast<double>(checkpoint.step), checkpoint.seconds, static_cast<double>(tuning.size())};
      kept = std::move(checkpoint.codec_state);
    }
    comm_.broadcast(progress, 0);
    comm_.broadcast(memory_of(buckets_.parameters()), 0);
    comm_.broadcast(memory_of(momentum_), 0);
    step_ = static_cast<std::size_t>(progress[0]);
    seconds_before_ = progress[1];
    follow(std::move(tuning), static_cast<std::size_t>(progress[2]));
    if (!settings_.resume.empty()) hand_out(std::move(kept));
  }

  // What was measured then decides as it did then, unless this run was given a table of its own.
  void follow(std::string tuning, std::size_t length) {
    if (!settings_.tuning.rows().empty()) return comm_.follow(settings_.tuning);
    if (length == 0 || !comm_.options().tuning.empty()) return;
    tuning.resize(length);
    comm_.broadcast(TypedSpan(tuning.data(), length, DType::u8), 0);
    comm_.follow(TuningTable::parse(tuning, "the tuning table of the checkpoint"));
  }

  // What the codec of each rank held back: rank 0 keeps the files.
  void hand_out(std::vector<std::vector<std::byte>> kept) {
    kept.resize(static_cast<std::size_t>(comm_.world()));
    std::vector<std::int64_t> sizes;
    for (const auto& state : kept) sizes.push_back(static_cast<std::int64_t>(state.size()));
    comm_.broadcast(sizes, 0);
    std::vector<std::byte>& own = kept[static_cast<std::size_t>(comm_.rank())];
    own.resize(static_cast<std::size_t>(sizes[static_cast<std::size_t>(comm_.rank())]));
    if (comm_.rank() != 0) comm_.recv({own.data(), own.size(), DType::u8}, 0);
    for (Rank rank = 1; comm_.rank() == 0 && rank < comm_.world(); ++rank) {
      const auto& state = kept[static_cast<std::size_t>(rank)];
      comm_.send({state.data(), state.size(), DType::u8}, rank);
    }
    if (!own.empty()) buckets_.restore_state(own);
  }

  // Of all ranks, on rank 0; empty elsewhere, and where nothing is held back.
  std::vector<std::vector<std::byte>> collect_codec_state() {
    std::vector<std::byte> own = buckets_.save_state();
    const std::array<std::int64_t, 1> size{static_cast<std::int64_t>(own.size())};
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(comm_.world()));
    comm_.all_gather(size, sizes);
    if (comm_.rank() != 0) {
      comm_.send({own.data(), own.size(), DType::u8}, 0);
      return {};
    }
    std::vector<std::vector<std::byte>> all{std::move(own)};
    for (Rank rank = 1; rank < comm_.world(); ++rank) {
      auto& state = all.emplace_back(static_cast<std::size_t>(sizes[static_cast<std::size_t>(rank)]));
      comm_.recv({state.data(), state.size(), DType::u8}, rank);
    }
    return all;
  }

  double train_one_step() {
    const auto started = steady_clock::now();
    const auto sent_before = comm_.traffic().bytes_sent;

    const auto chosen = sampler_.batch(step_, static_cast<std::size_t>(comm_.rank()));
    const auto index =
        at::from_blob(const_cast<std::int64_t*>(chosen.data()), {static_cast<std::int64_t>(chosen.size())}, at::kLong);
    const auto images = normalize_(train_.images.index_select(0, index));
    const auto labels = train_.labels.index_select(0, index).to(at::kLong);
    buckets_.clear();
    if (recorder_) recorder_->begin_forward();
    const auto loss = at::cross_entropy_loss(model_->forward(images), labels);
    if (recorder_) recorder_->begin_backward();
    loss.backward();
    const auto waited = buckets_.finish();
    exposed_ += waited;
    {
      const at::NoGradGuard no_grad;
      // A codec that corrects momentum has put it into the average.
      if (exchange_->momentum() > 0)
        momentum_.copy_(buckets_.gradients());
      else
        momentum_.mul_(settings_.momentum).add_(buckets_.gradients());
      buckets_.parameters().add_(momentum_, -learning_rate());
    }

    ++step_;
    ++result_.steps_here;
    bytes_sent_ += comm_.traffic().bytes_sent - sent_before;
    const auto took = steady_clock::now() - started;
    spent_ += took;
    if (recorder_)
      record(took, waited);
    else
      step_seconds_.emplace_back(in_seconds(took), in_seconds(waited));
    const double value = loss.item<double>();
    loss_sum_ += value;
    ++loss_count_;
    return value;
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

  // The median step and what of it is waiting, the mean over the workers.
  std::array<double, 2> median_step() {
    std::array<double, 2> result{};
    // The first ones warm up, where there are others.
    const std::size_t first = step_seconds_.size() > 2 * StepRecorder::warm_up ? StepRecorder::warm_up : 0;
    if (first < step_seconds_.size()) {
      std::vector<std::pair<double, double>> sorted(step_seconds_.begin() + static_cast<std::ptrdiff_t>(first),
                                                    step_seconds_.end());
      std::sort(sorted.begin(), sorted.end());
      result = {sorted[sorted.size() / 2].first, sorted[sorted.size() / 2].second};
    }
    comm_.all_reduce(result, {.op = ReduceOp::average});
    return result;
  }

  // All ranks hear the same mean and decide alike. Nothing is under way between two steps.
  void judge_plan() {
    if (median_step()[0] <= (1 + tolerated_error) * settings_.planned_step_seconds) return;
    comm_.follow({});
    result_.dropped_tuning_at = step_;
  }

  // Half a cosine from the first rate to 0 over all epochs (Loshchilov and Hutter, arXiv:1608.03983, without restarts).
  double learning_rate() const {
    const auto all = static_cast<double>(settings_.epochs * sampler_.steps_per_epoch());
    return settings_.learning_rate / 2 * (1 + std::cos(std::numbers::pi * static_cast<double>(step_) / all));
  }

  // Every worker looks at its share of the test samples.
  void evaluate() {
    const at::NoGradGuard no_grad;
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
    auto codec_state = collect_codec_state();
    if (comm_.rank() != 0) return;
    const auto parameters = memory_of(buckets_.parameters());
    const auto momentum = memory_of(momentum_);
    save_checkpoint(settings_.save, {.identity = identity_,
                                     .step = step_,
                                     .seconds = seconds_before_ + in_seconds(spent_),
                                     .tuning = comm_.tuning().text(),
                                     .parameters = {parameters.begin(), parameters.end()},
                                     .momentum = {momentum.begin(), momentum.end()},
                                     .codec_state = std::move(codec_state)});
  }

  TrainResult conclude() {
    const auto parameters = memory_of(buckets_.parameters());
    result_.parameter_hash = hash_of(parameters);
    require_equal(comm_, result_.parameter_hash, "parameters after training");
    std::array<double, 2> means{static_cast<double>(bytes_sent_),
                                in_seconds(exposed_) / std::max(in_seconds(spent_), 1e-9)};
    comm_.all_reduce(means, {.op = ReduceOp::average});
    result_.bytes_sent_per_worker = means[0];
    result_.exposed_communication_share = means[1];
    result_.plain_buckets = exchange_->plain_buckets();
    result_.codec_state_bytes = exchange_->state_bytes();
    if (recorder_) stop_recording();  // it ended early
    const auto [step_seconds, waiting_seconds] = median_step();
    result_.median_step_seconds = step_seconds;
    result_.median_waiting_seconds = waiting_seconds;
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
  const std::unique_ptr<Exchange> exchange_;
  const std::unique_ptr<Model> model_;
  GradientBuckets buckets_;
  at::Tensor momentum_;
  std::optional<StepRecorder> recorder_;

  std::size_t last_step_ = 0;
  std::size_t step_ = 0;  // completed
  double seconds_before_ = 0;
  nanoseconds spent_{};
  nanoseconds exposed_{};
  std::uint64_t bytes_sent_ = 0;
  std::vector<std::pair<double, double>> step_seconds_;  // of each step: all, and waiting for averages
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
