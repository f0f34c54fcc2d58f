// By what policy and codec the replicas of a run are kept alike, and how that changes while it goes on.
#include <utility>

#include "integrations/trainer/run.h"

namespace ranvier::trainer {

std::unique_ptr<Synchronizer> Run::make_synchronizer(const std::string& policy, std::size_t complete) {
  return std::make_unique<Synchronizer>(
      comm_, SynchronizerOptions{.sync = policy,
                                 .compress = plan_.sending().compress,
                                 .place = settings_.place,
                                 .samples = static_cast<double>(shares_.own()),
                                 .run = {.steps_per_epoch = sampler_.steps_per_epoch(),
                                         .steps = settings_.epochs * sampler_.steps_per_epoch(),
                                         .begin = complete}});
}

void Run::begin_policy() {
  sync_->begin(memory_of(buckets_.parameters()), buckets_.shapes());
  own_pace_ = own_pace_training(comm_, sync_->policy(), own_pace_worker(),
                                {.samples = all_samples(),
                                 .done = sampler_.before(step_),
                                 .seed = settings_.seed,
                                 .serve = settings_.serve,
                                 .nodes = sync_->node_of_rank(),
                                 .compress = plan_.sending().compress,
                                 .tensors = buckets_.shapes()});
}

void Run::renew_synchronizer(const std::string& policy) {
  const auto mark = Account::begin(*sync_);
  sync_->end(memory_of(buckets_.parameters()));
  // Equal gradients keep replicas equal only where what the optimizer remembers is, as it is if they have been until
  // now.
  const bool is_equal = !own_pace_ && !sync_->parts_replicas();
  if (own_pace_) {
    own_pace_->leave();
    own_pace_.reset();
    comm_.barrier();  // all servers are gone before anybody asks new ones
  }
  if (!is_equal) comm_.broadcast(memory_of(optimizer_->state()), 0);
  account_.add_traffic(mark, *sync_);
  auto before = std::exchange(sync_, make_synchronizer(policy, step_));  // its exchange lives while buckets know it
  buckets_.exchange_by(gradient_exchange());
  before.reset();
  begin_policy();
}

// ---- --sync auto.

// By what training has shown since the last time, and what little has to be measured beside. Replicas meet, and go on
// by another policy if that is better. All of it is exchanges, for which computing waits.
void Run::choose_policy() {
  const auto mark = Account::begin(*sync_);
  const auto reports = measure();
  const auto bytes_before = auto_->bytes();
  const auto choice = auto_->choose(reports, choice_, static_cast<double>(last_step_ - step_));
  account_.add_traffic(mark, *sync_);
  const auto bytes = auto_->bytes();
  account_.add_bytes(bytes.first - bytes_before.first, bytes.second - bytes_before.second);
  const bool is_new = choice.sync != choice_.sync || choice.split_by_speed != choice_.split_by_speed;
  if (is_new) {
    result_.decisions.push_back(
        {.step = step_, .sync = choice.sync, .split_by_speed = choice.split_by_speed, .reason = choice.reason});
    adopt(choice);
  }
  if (choice_.split_by_speed) shares_.follow(speeds_of(reports));
  account_.add_waiting(account_.add_time(mark));
}

void Run::adopt(const PolicyChoice& choice) {
  const bool is_another = choice.sync != choice_.sync;
  choice_ = choice;
  if (!choice.split_by_speed) shares_.even();
  if (is_another) renew_synchronizer(choice.sync);
}

// ---- Plans.

// Nothing is under way between two steps.
void Run::judge_plan(const TrainEvents& events) {
  auto changed = plan_.judge(step_, comm_, events.replan, gradient_exchange().momentum() > 0);
  if (!changed) return;
  send_by({changed->change.compress, changed->change.bucket_bytes});
  result_.changes.push_back(std::move(*changed));
  if (speaks() && events.on_change) events.on_change(result_.changes.back());
}

// From now on. What the codec before held back is lost.
void Run::send_by(const Sending& next) {
  const Sending before = plan_.sending();
  plan_.send_by(next);
  const Sending& now = plan_.sending();
  if (now.bucket_bytes != before.bucket_bytes) buckets_.cut(now.bucket_bytes);
  if (now.compress != before.compress) renew_synchronizer(choice_.sync.empty() ? settings_.sync : choice_.sync);
}

}  // namespace ranvier::trainer
