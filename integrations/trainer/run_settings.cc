#include "integrations/trainer/run_settings.h"

namespace ranvier::trainer {

Identity identity_of(const TrainSettings& settings, const Dataset& data, Rank world) {
  return {{"--model", settings.model},
          {"--batch", std::to_string(settings.batch)},
          {"--accumulate", std::to_string(settings.accumulate)},
          {"--epochs", std::to_string(settings.epochs)},
          {"--lr", std::to_string(settings.learning_rate)},
          {"--lr-batch", std::to_string(settings.learning_rate_batch)},
          {"--warm-up", std::to_string(settings.warm_up)},
          {"--optimizer", settings.optimizer},
          {"--sync", settings.sync},
          {"--place", settings.place},
          {"--seed", std::to_string(settings.seed)},
          {"workers", std::to_string(world)},
          {"data of checksum", data.fingerprint}};
}

std::uint64_t hash_of(const Identity& identity) {
  std::uint64_t hash = 0;
  for (const auto& [name, value] : identity)
    for (const char letter : name + "=" + value + ";") hash = hash * 31 + static_cast<unsigned char>(letter);
  return hash;
}

LearningRate rate_of(const TrainSettings& settings, double samples, double steps) {
  LearningRate rate = settings.learning_rate_batch > 0
                          ? scaled_linearly(settings.learning_rate, samples, settings.learning_rate_batch)
                          : LearningRate{.peak = settings.learning_rate};
  rate.warm_up = static_cast<double>(settings.warm_up);
  rate.steps = steps;
  return rate;
}

PaceSettings pace_of(const TrainSettings& settings, Rank rank) {
  const auto at = static_cast<std::size_t>(rank);
  PaceSettings pace{.speed = at < settings.speeds.size() ? settings.speeds[at] : 1,
                    .jitter_share = settings.jitter_share,
                    .jitter_factor = settings.jitter_factor,
                    .seed = settings.seed * 1'000'003 + at};
  for (const auto& each : settings.stragglers)
    if (each.rank == rank) pace.straggles.push_back(each.when);
  return pace;
}

}  // namespace ranvier::trainer
