#include "integrations/trainer/run_settings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>

#include "base/fnv.h"
#include "integrations/trainer/sampler.h"
#include "ranvier/error.h"
#include "ranvier/sync.h"

namespace ranvier::trainer {

namespace {

// The shortest text that says this number and no other.
std::string exact(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

}  // namespace

Identity identity_of(const TrainSettings& settings, const Dataset& data, Rank world) {
  return {{"--model", settings.model},
          {"--batch", std::to_string(settings.batch)},
          {"--accumulate", std::to_string(settings.accumulate)},
          {"--epochs", std::to_string(settings.epochs)},
          {"--lr", exact(settings.learning_rate)},
          {"--lr-batch", exact(settings.learning_rate_batch)},
          {"--warm-up", std::to_string(settings.warm_up)},
          {"--optimizer", settings.optimizer},
          {"--weight-decay", exact(settings.weight_decay)},
          {"--sync", settings.sync},
          {"--place", settings.place},
          {"--seed", std::to_string(settings.seed)},
          {"workers", std::to_string(world)},
          {"data of checksum", data.fingerprint}};
}

Identity terms_of(const TrainSettings& settings, const Dataset& data, Rank world) {
  Identity terms = identity_of(settings, data, world);
  terms.insert(
      {{"--steps", std::to_string(settings.steps)},
       {"--target-accuracy", exact(settings.target_accuracy.value_or(0))},
       {"--target-loss", exact(settings.target_loss.value_or(0))},
       {"--evaluate-every", std::to_string(settings.evaluate_every)},
       {"--compress", settings.compress},
       {"--parallel", settings.parallel},
       {"--bucket", std::to_string(settings.bucket_bytes)},
       {"--split", settings.split_by_speed ? "speed" : "even"},
       // Whether and by what steps are judged: only all together can change a plan.
       {"--plan", settings.tuning.text() + exact(settings.planned.step) + ' ' + exact(settings.planned.waiting)},
       {"--record", settings.record ? "on" : "off"},
       {"--save", settings.save.empty() ? "off" : "on"},
       {"--resume", settings.resume.empty() ? "off" : "on"}});
  return terms;
}

void require_equal_terms(Communicator& comm, const Identity& terms) {
  std::vector<std::int64_t> own;
  for (const auto& [name, value] : terms) own.push_back(static_cast<std::int64_t>(fnv1a(value)));
  std::vector<std::int64_t> all(own.size() * static_cast<std::size_t>(comm.world()));
  comm.all_gather(own, all);
  for (std::size_t i = own.size(); i < all.size(); ++i) {
    if (all[i] == all[i % own.size()]) continue;
    const auto rank = static_cast<Rank>(i / own.size());
    const std::string& name = std::next(terms.begin(), static_cast<std::ptrdiff_t>(i % own.size()))->first;
    throw Error(ErrorKind::mismatch,
                "rank " + std::to_string(rank) + " has another " + name + " than rank 0; give all ranks the same",
                rank);
  }
}

std::size_t training_ranks(const std::string& sync, Rank world) {
  const auto rule = sync == "auto" ? std::nullopt : make_sync_policy(sync, {})->server();
  return static_cast<std::size_t>(rule ? workers_of(*rule, world) : world);
}

void check_batch(const TrainSettings& settings, const Dataset& data, Rank world) {
  steps_per_epoch(training_samples(data), settings.batch * settings.accumulate, training_ranks(settings.sync, world));
}

bool ends_in_synchronous_beginning(const TrainSettings& settings, const Dataset& data, Rank world) {
  if (settings.sync == "auto" || world == 1) return false;
  const std::size_t each = steps_per_epoch(training_samples(data), settings.batch * settings.accumulate,
                                           training_ranks(settings.sync, world));
  const std::size_t all = settings.epochs * each;
  const auto policy = make_sync_policy(
      settings.sync, {.steps_per_epoch = each, .steps = all, .world = static_cast<std::uint64_t>(world)});
  if (policy->gradient_level() != policy->levels().size() || !policy->averages_parameters()) return false;
  return !policy->react({.point = SyncPoint::step_begins, .step = std::min(settings.steps, all) - 1}).empty();
}

LearningRate rate_of(const TrainSettings& settings, double samples, double steps) {
  LearningRate rate = settings.learning_rate_batch > 0
                          ? scaled_linearly(settings.learning_rate, samples, settings.learning_rate_batch)
                          : LearningRate{.peak = settings.learning_rate};
  rate.warm_up = static_cast<double>(settings.warm_up);
  rate.steps = steps;
  return rate;
}

}  // namespace ranvier::trainer
