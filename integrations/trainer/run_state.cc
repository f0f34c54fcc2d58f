// What a run keeps in a checkpoint beside the model, and how it goes on from one.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/parts.h"
#include "integrations/trainer/run.h"
#include "integrations/trainer/run_checkpoint.h"

namespace ranvier::trainer {

// The first replica's state becomes everybody's: the checkpoint's, or its first draw of the weights.
void Run::begin() {
  if (const auto has_kept = who_has_kept(); std::ranges::find(has_kept, 1) != has_kept.end())
    return go_on_from_kept(has_kept);
  Progress progress = begin_from(settings_.resume, identity_, memory(), team_);
  step_ = progress.step;
  seconds_before_ = progress.seconds;
  follow(comm_, progress.tuning);
  begin_policy();
  if (!settings_.resume.empty()) restore_own(progress.own, progress.tuning);
  keep(step_);
}

// ---- Members come and go.

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

// By rank. Newcomers have nothing; and somebody may have been lost before all had begun.
std::vector<std::int64_t> Run::who_has_kept() {
  std::vector<std::int64_t> all(static_cast<std::size_t>(comm_.world()), 0);
  if (kept_ == nullptr) return all;
  const std::array<std::int64_t, 1> own{kept_->parameters.empty() ? 0 : 1};
  comm_.all_gather(own, all);
  return all;
}

// Those that have been there have taken as many steps, give or take one: the first one's last one counts. Replicas that
// policies let differ go on from their mean.
void Run::go_on_from_kept(const std::vector<std::int64_t>& has_kept) {
  const auto root = static_cast<Rank>(std::ranges::find(has_kept, 1) - has_kept.begin());
  const auto [parameters, optimizer] = memory();
  std::ranges::copy(kept_->parameters, parameters.begin());
  std::ranges::copy(kept_->optimizer, optimizer.begin());
  if (sync_->policy().averages_parameters() || sync_->policy().meets_peers()) {
    if (kept_->parameters.empty()) std::ranges::fill(parameters, 0.0F);
    comm_.all_reduce(parameters);
    const auto holders = static_cast<float>(std::ranges::count(has_kept, 1));
    for (float& each : parameters) each /= holders;
  }
  std::array<double, 2> numbers{static_cast<double>(kept_->step), kept_->seconds};
  comm_.broadcast(numbers, root);
  comm_.broadcast(parameters, root);
  comm_.broadcast(optimizer, root);
  step_ = static_cast<std::size_t>(numbers[0]);
  seconds_before_ = numbers[1];
  take_kept_history(root);
  // Periods begin anew at this step, which was not known when the policy was made.
  auto before = std::exchange(sync_, make_synchronizer(first_, step_));  // buckets know its exchange
  buckets_.exchange_by(gradient_exchange());
  before.reset();
  begin_policy();
  keep(step_);
  const std::size_t seen = result_.history.empty() ? 0 : result_.history.back().step;
  if (step_ > seen && is_evaluation_due()) evaluate();
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

// What was measured then decides as it did then, unless this run was given a table of its own.
void Run::follow(Communicator& comm, const std::string& tuning) {
  if (!settings_.tuning.rows().empty()) return comm.follow(settings_.tuning);
  if (tuning.empty() || !comm.options().tuning.empty()) return;
  comm.follow(TuningTable::parse(tuning, "the tuning table of the checkpoint"));
}

void Run::save() {
  if (settings_.save.empty()) return;
  save_to(settings_.save, identity_, memory(),
          {.step = step_,
           .seconds = seconds_before_ + account_.seconds(),
           .tuning = comm_.tuning().text(),
           .own = save_own()},
          team_);
}

// What its codecs hold back, its policy's state, its share of the samples and, where replicas differ, its own.
std::vector<std::byte> Run::save_own() {
  std::vector<std::byte> all;
  if (!team_.is_whole()) append_text(all, team_.members().tuning().text());
  append_text(all, choice_.sync);
  const std::array<std::byte, 1> split{std::byte{choice_.split_by_speed}};
  append_part(all, split);
  plan_.save(all);
  append_part(all, buckets_.save_state());
  append_part(all, sync_->save());
  const std::size_t share = shares_.own();
  append_part(all, std::as_bytes(std::span(&share, 1)));
  if (sync_->policy().server()) append_part(all, own_pace_->save());
  if (!sync_->parts_replicas()) return all;
  append_part(all, std::as_bytes(memory_of(buckets_.parameters())));
  append_part(all, std::as_bytes(memory_of(optimizer_->state())));
  return all;
}

void Run::restore_own(ConstBytes kept, const std::string& tuning) {
  if (!team_.is_whole()) follow(team_.members(), take_text(kept));
  std::string policy = take_text(kept);
  std::array<std::byte, 1> split{};
  take_values(kept, std::span<std::byte>(split));
  if (!policy.empty()) adopt({.sync = std::move(policy), .split_by_speed = split[0] != std::byte{0}});
  send_by(plan_.restore(kept, comm_, tuning));
  buckets_.restore_state(take_part(kept));
  sync_->restore(take_part(kept));
  std::size_t share = 0;
  take_values(kept, std::span(&share, 1));
  if (settings_.split_by_speed || choice_.split_by_speed) shares_.restore(share);
  if (sync_->policy().server() && !kept.empty()) own_pace_->restore(take_part(kept));
  // Of a run whose replicas could not differ there is one state, which all have by now.
  if (!sync_->parts_replicas() || (kept.empty() && !sync_->policy().averages_parameters())) return;
  take_values(kept, memory_of(buckets_.parameters()));
  take_values(kept, memory_of(optimizer_->state()));
}

}  // namespace ranvier::trainer
