#include "integrations/trainer/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "ranvier/error.h"

namespace ranvier::trainer {

std::size_t steps_per_epoch(std::size_t samples, std::size_t batch, std::size_t world) {
  const std::size_t step = batch * world;
  if (samples < step)
    throw Error(ErrorKind::config,
                fmt::format("{} training samples are too few for one step of {} workers with a batch "
                            "of {} each (--batch, times --accumulate where that is given); lower it",
                            samples, world, batch));
  return (samples + step - 1) / step;
}

Sampler::Sampler(std::size_t samples, std::size_t batch, std::size_t world, std::uint64_t seed)
    : step_(batch * world),
      seed_(seed),
      steps_per_epoch_(trainer::steps_per_epoch(samples, batch, world)),
      order_(samples) {
  shuffle(0);
}

std::size_t Sampler::size(std::size_t step) const {
  return std::min(step_, order_.size() - step % steps_per_epoch_ * step_);
}

std::uint64_t Sampler::before(std::size_t step) const {
  return step / steps_per_epoch_ * order_.size() + step % steps_per_epoch_ * step_;
}

double Sampler::steps(std::uint64_t samples) const {
  const auto of_epoch = static_cast<double>(samples % order_.size());
  return static_cast<double>(samples / order_.size() * steps_per_epoch_) + of_epoch / static_cast<double>(step_);
}

std::span<const std::int64_t> Sampler::from(std::uint64_t sample, std::size_t count) {
  const std::size_t epoch = sample / order_.size();
  if (epoch != shuffled_for_) shuffle(epoch);
  return std::span(order_).subspan(sample % order_.size(), count);
}

// Fisher and Yates's shuffle. Written out, since the order that std::shuffle gives differs between standard libraries,
// while mt19937_64 and seed_seq are specified to the bit.
void Sampler::shuffle(std::size_t epoch) {
  std::iota(order_.begin(), order_.end(), std::int64_t{0});
  std::seed_seq words{static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32),
                      static_cast<std::uint32_t>(epoch)};
  std::mt19937_64 random(words);
  for (std::size_t left = order_.size(); left > 1; --left) std::swap(order_[left - 1], order_[random() % left]);
  shuffled_for_ = epoch;
}

}  // namespace ranvier::trainer
