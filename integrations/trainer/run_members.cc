// How a run goes on with fewer workers after a loss, and with more after a pause.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "integrations/trainer/run.h"

namespace ranvier::trainer {

bool Run::is_to_pause(const TrainEvents& events) {
  if (kept_ == nullptr) return false;
  std::array<std::int64_t, 1> pauses{speaks() && events.is_to_pause && events.is_to_pause() ? 1 : 0};
  comm_.broadcast(pauses, 0);
  return pauses[0] != 0;
}

// Replicas that differ become one, as at the end.
TrainResult Run::pause() {
  sync_->end(memory_of(buckets_.parameters()));
  if (own_pace_) own_pace_->leave();
  own_pace_.reset();
  keep(step_);
  comm_.barrier();
  TrainResult none;
  none.is_paused = true;
  return none;
}

// By rank; newcomers have none, and somebody may have been lost before all had begun.
std::vector<std::int64_t> Run::steps_kept() {
  std::vector<std::int64_t> all(static_cast<std::size_t>(comm_.world()), nothing_kept);
  if (kept_ == nullptr) return all;
  const std::array<std::int64_t, 1> own{kept_->parameters.empty() ? nothing_kept
                                                                  : static_cast<std::int64_t>(kept_->step)};
  comm_.all_gather(own, all);
  return all;
}

// From where the first of those is that have come furthest: of own pace the others hold what was true at the end of
// their last step, which of a slow one is long ago. Replicas that policies let differ go on from their mean.
void Run::go_on_from_kept(const std::vector<std::int64_t>& steps) {
  const auto root = static_cast<Rank>(std::ranges::max_element(steps) - steps.begin());
  const auto [parameters, optimizer] = memory();
  std::ranges::copy(kept_->parameters, parameters.begin());
  std::ranges::copy(kept_->optimizer, optimizer.begin());
  if (do_replicas_differ()) {
    if (kept_->parameters.empty()) std::ranges::fill(parameters, 0.0F);
    comm_.all_reduce(parameters);
    const auto holders = std::ssize(steps) - std::ranges::count(steps, nothing_kept);
    for (float& each : parameters) each /= static_cast<float>(holders);
  }
  std::array<double, 2> numbers{static_cast<double>(kept_->step), kept_->seconds};
  comm_.broadcast(numbers, root);
  comm_.broadcast(parameters, root);
  comm_.broadcast(optimizer, root);
  step_ = static_cast<std::size_t>(numbers[0]);
  seconds_before_ = numbers[1];
  take_kept_history(root);
  // Periods begin anew at this step, which was not known when the policy was made.
  synchronize_by(first_);
  keep(step_);
}

// The last look may have been lost on some, and newcomers have seen none: what `root` has seen counts.
void Run::take_kept_history(Rank root) {
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  constexpr std::size_t numbers_each = 7;
  std::array<std::int64_t, 1> looks{static_cast<std::int64_t>(kept_->history.size())};
  comm_.broadcast(looks, root);
  if (looks[0] == 0) return;
  std::vector<double> numbers;
  if (comm_.rank() == root)
    for (const auto& [step, seconds, loss, test] : kept_->history)
      numbers.insert(numbers.end(),
                     {static_cast<double>(step), seconds, loss.value_or(none), test.loss, test.accuracy.value_or(none),
                      test.bits_per_character.value_or(none), test.frechet_distance.value_or(none)});
  numbers.resize(static_cast<std::size_t>(looks[0]) * numbers_each);
  comm_.broadcast(numbers, root);
  const auto known = [](double number) { return std::isnan(number) ? std::nullopt : std::optional(number); };
  for (std::size_t at = 0; at < numbers.size(); at += numbers_each)
    result_.history.push_back({.step = static_cast<std::size_t>(numbers[at]),
                               .seconds = numbers[at + 1],
                               .loss = known(numbers[at + 2]),
                               .test = {.loss = numbers[at + 3],
                                        .accuracy = known(numbers[at + 4]),
                                        .bits_per_character = known(numbers[at + 5]),
                                        .frechet_distance = known(numbers[at + 6])}});
  kept_->history = result_.history;
}

// Behind a step, when nothing is under way into this memory.
void Run::keep(std::size_t step) {
  if (kept_ == nullptr) return;
  const auto [parameters, optimizer] = memory();
  kept_->step = step;
  kept_->seconds = seconds_before_ + account_.seconds();
  kept_->parameters.assign(parameters.begin(), parameters.end());
  kept_->optimizer.assign(optimizer.begin(), optimizer.end());
}

}  // namespace ranvier::trainer
