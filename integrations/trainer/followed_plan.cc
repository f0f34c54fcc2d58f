#include "integrations/trainer/followed_plan.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/parts.h"

namespace ranvier::trainer {

void FollowedPlan::send_by(const Sending& next) {
  if (!next.compress.empty()) now_.compress = next.compress;
  if (next.bucket_bytes > 0) now_.bucket_bytes = next.bucket_bytes;
}

// Of steps that judge the plan, and after so many of which it is judged again.
std::size_t FollowedPlan::window() const {
  constexpr std::size_t most_doublings = 16;
  return judged_steps << (changes_ < quick_changes ? 0 : std::min(changes_ - quick_changes + 1, most_doublings));
}

bool FollowedPlan::is_due() const {
  return planned_.step > 0 && times_.count() > StepTimes::warm_up &&
         (times_.count() - StepTimes::warm_up) % window() == 0;
}

std::optional<ChangedPlan> FollowedPlan::judge(std::size_t steps, Communicator& comm, const Replan& replan,
                                               double gradient_bytes, bool keeps_codec) {
  const StepSeconds measured = times_.median_of_last(window(), comm);
  const double error = measured.step / planned_.step;
  if (error <= 1 + tolerated_error && 1 / error <= 1 + tolerated_error) return std::nullopt;
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
