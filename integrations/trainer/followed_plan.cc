#include "integrations/trainer/followed_plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <utility>
#include <vector>

#include "base/parts.h"
#include "ranvier/sync.h"

namespace ranvier::trainer {
namespace {

// Where another policy can take over: not from ranks that only serve, nor from servers of guests.
bool can_be_left(const TrainSettings& settings) {
  const auto server = make_sync_policy(settings.sync, {.steps_per_epoch = 1, .steps = 1, .world = 1})->server();
  return server && server->servers == 0 && settings.serve == 0;
}

// "12.34"; {fmt} here would be torch's headers and the system's library.
std::string milliseconds(double seconds) {
  std::array<char, 64> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), seconds * 1e3, std::chars_format::fixed, 2).ptr;
  return {text.data(), end};
}

}  // namespace

std::size_t period_of(const std::string& sync, Rank world) {
  constexpr std::size_t most = 1024;
  constexpr std::size_t steps = 4 * most;
  // An epoch, which some have as their period, is of nobody knows how many steps.
  const auto policy = make_sync_policy(
      sync, {.steps_per_epoch = steps + 1, .steps = steps, .world = static_cast<std::uint64_t>(world)});
  if (policy->goes_at_own_pace() || policy->wants_spread()) return 0;
  std::vector<std::vector<std::size_t>> asked_for(steps);
  for (std::size_t step = 0; step < steps; ++step)
    for (const SyncEvent& event : {SyncEvent{.point = SyncPoint::step_begins, .step = step},
                                   SyncEvent{.point = SyncPoint::step_ended, .step = step + 1}}) {
      bool has_averaged = false;
      for (const SyncAction& action : policy->react(event)) {
        auto& all = asked_for[step];
        all.insert(all.end(), {static_cast<std::size_t>(event.point), static_cast<std::size_t>(action.what),
                               action.inside, action.level, action.hops, action.fragment});
        has_averaged |= action.what == SyncAction::What::parameters && action.level == policy->levels().size();
      }
      if (has_averaged) policy->react({.point = SyncPoint::averaged, .step = step + 1});
    }
  if (std::ranges::all_of(asked_for, [](const auto& actions) { return actions.empty(); })) return 0;
  for (std::size_t period = 1; period <= most; ++period) {
    // In the first one no fragment of a period before comes to its end.
    const auto first = asked_for.begin() + static_cast<std::ptrdiff_t>(policy->fragments() > 0 ? period : 0);
    if (std::equal(first + static_cast<std::ptrdiff_t>(period), asked_for.end(), first)) return period;
  }
  return 0;
}

FollowedPlan::FollowedPlan(const TrainSettings& settings, Rank world)
    : settings_(settings), now_{settings.compress, settings.bucket_bytes}, planned_(settings.planned) {
  if (!(planned_.step > 0)) return;
  at_own_pace_ = can_be_left(settings);
  period_ = period_of(settings.sync, world);
  if (period_ == 0 && !at_own_pace_) planned_ = {};
}

void FollowedPlan::add_steps(std::size_t count, std::chrono::nanoseconds took, std::chrono::nanoseconds waited) {
  if (is_left_) return;
  const auto each = static_cast<std::chrono::nanoseconds::rep>(count);
  for (std::size_t i = 0; i < count; ++i) times_.add(took / each, waited / each);
}

void FollowedPlan::send_by(const Sending& next) {
  if (!next.compress.empty()) now_.compress = next.compress;
  if (next.bucket_bytes > 0) now_.bucket_bytes = next.bucket_bytes;
}

// Of steps that judge the plan, and after so many of which it is judged again: whole periods.
std::size_t FollowedPlan::window() const {
  constexpr std::size_t most_doublings = 16;
  const std::size_t wanted = settings_.planned_unequal ? judged_unequal_steps : judged_steps;
  const std::size_t least = (wanted + period_ - 1) / period_ * period_;
  return least << (changes_ < quick_changes ? 0 : std::min(changes_ - quick_changes + 1, most_doublings));
}

bool FollowedPlan::is_due() const {
  return planned_.step > 0 && period_ > 0 && times_.count() > StepTimes::warm_up &&
         (times_.count() - StepTimes::warm_up) % window() == 0;
}

std::optional<ChangedPlan> FollowedPlan::judge(std::size_t steps, Communicator& comm, const Replan& replan,
                                               double gradient_bytes, bool keeps_codec) {
  // Steps of one kind are best told by their median.
  const bool are_alike = period_ == 1 && !settings_.planned_unequal;
  const StepSeconds measured = are_alike ? times_.median_of_last(window(), comm) : times_.mean_of_last(window(), comm);
  if (!is_wrong(measured)) return std::nullopt;
  PlanChange change = agree_on_change(
      comm, replan, {.tuning = comm.tuning(), .compress = now_.compress, .bucket_bytes = now_.bucket_bytes},
      {.planned = planned_, .measured = measured, .gradient_bytes = gradient_bytes});
  if (change.reason.empty()) {
    planned_ = change.expected;
    return std::nullopt;
  }
  // What a codec that corrects momentum has gathered is not to be lost; without its codec nothing of a plan holds.
  if (keeps_codec && !change.compress.empty() && change.compress != now_.compress)
    change = {.reason = change.reason + "; but " + now_.compress +
                        " stays, which has gathered momentum, and algorithms are chosen by the model of the links"};
  comm.follow(change.tuning);
  planned_ = change.expected;
  ++changes_;
  times_ = {};
  return ChangedPlan{.step = steps, .change = std::move(change), .measured = measured};
}

bool FollowedPlan::is_wrong(const StepSeconds& measured) const {
  const double error = measured.step / planned_.step;
  return error > 1 + tolerated_error || 1 / error > 1 + tolerated_error;
}

std::optional<ChangedPlan> FollowedPlan::judge_pace(std::size_t steps, Communicator& comm) {
  if (!(planned_.step > 0) || !at_own_pace_ || times_.count() < judged_ + judged_steps) return std::nullopt;
  const StepSeconds measured = times_.mean_of_last(times_.count() - judged_, comm);
  judged_ = times_.count();
  if (!is_wrong(measured)) return std::nullopt;
  return ChangedPlan{
      .step = steps,
      .change = {.reason = "the samples of a step take " + milliseconds(measured.step) + " ms and not " +
                           milliseconds(planned_.step) +
                           ": the policy is chosen by what training shows from now on, as by --sync auto"},
      .measured = measured};
}

void FollowedPlan::leave() {
  is_left_ = true;
  planned_ = {};
}

void FollowedPlan::save(std::vector<std::byte>& all) const {
  const std::string compress = now_.compress == settings_.compress ? "" : now_.compress;
  const std::size_t bucket = now_.bucket_bytes == settings_.bucket_bytes ? 0 : now_.bucket_bytes;
  append_part(all, std::as_bytes(std::span(&changes_, 1)));
  append_part(all, std::as_bytes(std::span(&planned_, 1)));
  append_text(all, compress);
  append_part(all, std::as_bytes(std::span(&bucket, 1)));
}

Sending FollowedPlan::restore(ConstBytes& kept, Communicator& comm, const std::string& tuning) {
  take_values(kept, std::span(&changes_, 1));
  StepSeconds planned;
  take_values(kept, std::span(&planned, 1));
  if (changes_ > 0) {
    comm.follow(tuning.empty() ? TuningTable{} : TuningTable::parse(tuning, "the tuning table of the checkpoint"));
    if (settings_.planned.step > 0) planned_ = planned;
  }
  Sending sending{.compress = take_text(kept)};
  take_values(kept, std::span(&sending.bucket_bytes, 1));
  return sending;
}

}  // namespace ranvier::trainer
