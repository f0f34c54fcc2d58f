// What a run keeps in a checkpoint beside the model, and how it goes on from one.
#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/parts.h"
#include "integrations/trainer/run.h"
#include "integrations/trainer/run_checkpoint.h"

namespace ranvier::trainer {

// The first replica's state becomes everybody's: the checkpoint's, or its first draw of the weights. True where they go
// on behind a loss or a pause, from what they have kept.
bool Run::begin() {
  if (const auto steps = steps_kept(); std::ranges::max(steps) != nothing_kept) {
    go_on_from_kept(steps);
    return true;
  }
  Progress progress = begin_from(settings_.resume, identity_, memory(), team_);
  step_ = progress.step;
  seconds_before_ = progress.seconds;
  follow(comm_, progress.tuning);
  if (sync_->policy().levels().size() > 1) team_.require_same_nodes(sync_->node_of_rank());
  if (progress.own.empty()) {
    if (step_ > 0)
      synchronize_by(first_);  // of a checkpoint of survivors: periods begin at this step
    else
      begin_policy();
  } else {
    begin_policy();
    restore_own(progress.own, progress.tuning);
  }
  keep(step_);
  return false;
}

// What was measured then decides as it did then, unless this run was given a table of its own.
void Run::follow(Communicator& comm, const std::string& tuning) {
  if (!settings_.tuning.rows().empty()) return comm.follow(settings_.tuning);
  if (tuning.empty() || !comm.options().tuning.empty()) return;
  comm.follow(TuningTable::parse(tuning, "the tuning table of the checkpoint"));
}

// Survivors write what those that are started anew with all workers can go on from, as they did themselves: the first
// one's memory, or the mean of replicas that differ. Where there is no room, training is worth more than a checkpoint:
// the next one is tried, and only a run that ends without has failed.
void Run::save(const TrainEvents& events) {
  if (settings_.save.empty()) return;
  Progress progress{.step = step_, .seconds = seconds_before_ + account_.seconds(), .tuning = comm_.tuning().text()};
  CheckpointMemory saved = memory();
  std::vector<float> mean;
  if (comm_.world() == ranks_) {
    progress.own = save_own();
  } else if (do_replicas_differ()) {
    mean.assign(saved.parameters.begin(), saved.parameters.end());
    comm_.all_reduce(mean, {.op = ReduceOp::average});
    saved.parameters = mean;
  }
  try {
    save_to(settings_.save, identity_, saved, std::move(progress), team_);
    result_.unsaved.clear();
  } catch (const Error& problem) {
    if (problem.kind() != ErrorKind::config) throw;
    result_.unsaved = problem.what();
    if (!is_over() && events.on_unsaved) events.on_unsaved(result_.unsaved);
  }
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
  if (!policy.empty() && !is_auto()) leave_plan();
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
