#include "integrations/trainer/followed_plan.h"

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

FollowedPlan::FollowedPlan(const TrainSettings& settings, Rank world)
    : settings_(settings),
      judge_(settings.sync, static_cast<std::uint64_t>(world), settings.planned, settings.planned_unequal),
      at_own_pace_(settings.planned.step > 0 && can_be_left(settings)),
      now_{settings.compress, settings.bucket_bytes} {
  if (!judge_.judges() && !at_own_pace_) judge_.expect({});
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

std::optional<ChangedPlan> FollowedPlan::judge(std::size_t steps, Communicator& comm, const Replan& replan,
                                               double gradient_bytes, bool keeps_codec) {
  const std::size_t last = judge_.window();
  const StepSeconds measured = judge_.by_median() ? times_.median_of_last(last, comm) : times_.mean_of_last(last, comm);
  if (!judge_.is_wrong(measured)) return std::nullopt;
  PlanChange change = agree_on_change(
      comm, replan, {.tuning = comm.tuning(), .compress = now_.compress, .bucket_bytes = now_.bucket_bytes},
      {.planned = judge_.expected(), .measured = measured, .gradient_bytes = gradient_bytes});
  if (change.reason.empty()) {
    judge_.expect(change.expected);
    return std::nullopt;
  }
  // What a codec that corrects momentum has gathered is not to be lost; without its codec nothing of a plan holds.
  if (keeps_codec && !change.compress.empty() && change.compress != now_.compress)
    change = {.reason = change.reason + "; but " + now_.compress +
                        " stays, which has gathered momentum, and algorithms are chosen by the model of the links"};
  comm.follow(change.tuning);
  judge_.change(change.expected);
  times_ = {};
  return ChangedPlan{.step = steps, .change = std::move(change), .measured = measured};
}

std::optional<ChangedPlan> FollowedPlan::judge_pace(std::size_t steps, Communicator& comm) {
  if (!(judge_.expected().step > 0) || !at_own_pace_ || times_.count() < judged_ + judged_steps) return std::nullopt;
  const StepSeconds measured = times_.mean_of_last(times_.count() - judged_, comm);
  judged_ = times_.count();
  if (!judge_.is_wrong(measured)) return std::nullopt;
  return ChangedPlan{
      .step = steps,
      .change = {.reason = "the samples of a step take " + milliseconds(measured.step) + " ms and not " +
                           milliseconds(judge_.expected().step) +
                           ": the policy is chosen by what training shows from now on, as by --sync auto"},
      .measured = measured};
}

void FollowedPlan::leave() {
  is_left_ = true;
  judge_.expect({});
}

void FollowedPlan::save(std::vector<std::byte>& all) const {
  const std::string compress = now_.compress == settings_.compress ? "" : now_.compress;
  const std::size_t bucket = now_.bucket_bytes == settings_.bucket_bytes ? 0 : now_.bucket_bytes;
  const std::size_t changes = judge_.changes();
  append_part(all, std::as_bytes(std::span(&changes, 1)));
  append_part(all, std::as_bytes(std::span(&judge_.expected(), 1)));
  append_text(all, compress);
  append_part(all, std::as_bytes(std::span(&bucket, 1)));
}

Sending FollowedPlan::restore(ConstBytes& kept, Communicator& comm, const std::string& tuning) {
  std::size_t changes = 0;
  take_values(kept, std::span(&changes, 1));
  judge_.set_changes(changes);
  StepSeconds planned;
  take_values(kept, std::span(&planned, 1));
  if (changes > 0) {
    comm.follow(tuning.empty() ? TuningTable{} : TuningTable::parse(tuning, "the tuning table of the checkpoint"));
    if (settings_.planned.step > 0) judge_.expect(planned);
  }
  Sending sending{.compress = take_text(kept)};
  take_values(kept, std::span(&sending.bucket_bytes, 1));
  return sending;
}

}  // namespace ranvier::trainer
