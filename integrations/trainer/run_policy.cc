// By what policy and codec the replicas of a run are kept alike, and how that changes while it goes on.
#include <string>
#include <utility>

#include "integrations/trainer/run.h"
#include "integrations/trainer/run_settings.h"

namespace ranvier::trainer {

SynchronizerOptions Run::options_of(const std::string& policy, std::size_t complete) const {
  return {.sync = policy,
          .compress = plan_.sending().compress,
          .place = settings_.place,
          .samples = static_cast<double>(shares_.own()),
          .run = {.steps_per_epoch = sampler_.steps_per_epoch(),
                  .steps = steps_of_epochs(settings_, sampler_.steps_per_epoch()),
                  .begin = complete},
          .groups = groups_};
}

std::unique_ptr<Synchronizer> Run::make_synchronizer(const std::string& policy, std::size_t complete) {
  return std::make_unique<Synchronizer>(comm_, options_of(policy, complete));
}

OwnPaceStart Run::own_pace_start() const {
  return {.samples = all_samples(),
          .done = sampler_.before(step_),
          .seed = settings_.seed,
          .serve = settings_.serve,
          .groups = groups_,
          .speeds = auto_ ? auto_->worker_speeds() : WorkerSpeeds{},
          .compress = plan_.sending().compress,
          .tensors = buckets_.shapes()};
}

void Run::begin_policy() {
  sync_->begin(memory_of(buckets_.parameters()), buckets_.shapes());
  own_pace_ = own_pace_training(comm_, sync_->policy(), own_pace_worker(), own_pace_start());
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
  synchronize_by(policy);
}

void Run::synchronize_by(const std::string& policy) {
  auto before = std::exchange(sync_, make_synchronizer(policy, step_));  // its exchange lives while buckets know it
  exchange_gradients();
  before.reset();
  begin_policy();
}

// Small sums in the memory of this machine take less time than the thread that would make them while backward goes on
// takes from it, by being woken for each bucket and put to sleep again until the other workers have come.
void Run::exchange_gradients() {
  constexpr std::size_t too_small_to_hide = 1 << 20;
  buckets_.exchange_by(gradient_exchange(), !sync_->gradients_stay_in_memory() ||
                                                memory_of(buckets_.gradients()).size_bytes() > too_small_to_hide);
}

// ---- --sync auto.

void Run::measure_for_policies() {
  auto_.emplace(groups_, sync_->node_of_rank(), static_cast<double>(all_samples()), buckets_.shapes(),
                settings_.compress, settings_.optimizer == "sgd" && settings_.weight_decay == 0);
  // Where several nodes have several replicas, most clusters go on by nodes: their groups are formed while the steps
  // are taken that tell. Else bsp would have to go on for as many again.
  const std::size_t nodes = sync_->nodes(), ranks = sync_->node_of_rank().size();
  if (1 < nodes && nodes < ranks) prepare("node:" + std::to_string(node_period));
}

// By what training has shown since the last time, and what little has to be measured beside. All of it is exchanges,
// for which computing waits; what another policy takes is formed while training goes on.
void Run::choose_policy() {
  const auto mark = Account::begin(*sync_);
  if (watched_at_ != step_) watch_speeds();
  speeds_are_new_ = false;
  auto choice = auto_->choose(choice_, static_cast<double>(last_step_ - step_));
  const bool is_open = choice_.sync.empty() && result_.steps_here < steps_to_measure && choice.sync == first_ &&
                       !choice.split_by_speed;  // what few steps have said is no reason to stay
  const bool is_new = !is_open && (choice.sync != choice_.sync || choice.split_by_speed != choice_.split_by_speed);
  if (is_new) {
    result_.decisions.push_back(
        {.step = step_, .sync = choice.sync, .split_by_speed = choice.split_by_speed, .reason = choice.reason});
    if (choice.sync != policy_in_use()) prepare(choice.sync);
    if (choice.split_by_speed) share_by(choice);  // at once, while groups are formed
    change_ = std::move(choice);
  }
  account_.add_traffic(mark, *sync_);
  account_.add_waiting(account_.add_time(mark));
  if (change_) take_up_change();
}

void Run::prepare(const std::string& policy) {
  const auto next = make_sync_policy(policy, {});
  if (next->server())
    prepare_own_pace(*next, own_pace_start());
  else
    Synchronizer::prepare(comm_, options_of(policy, step_));
}

// Where all hold the same anyway, and as soon as all have what it takes.
void Run::take_up_change() {
  if (is_over() || !sync_->agreed()) return;
  const auto mark = Account::begin(*sync_);
  using Hear = replica::TeamPool::Hear;
  if (groups_->all_are_ready(own_pace_ ? Hear::now : Hear::later)) {
    result_.decisions.back().in_use_from = step_;
    account_.add_traffic(mark, *sync_);
    adopt(*std::exchange(change_, std::nullopt));
    account_.add_waiting(account_.add_time(mark));
  } else {
    account_.add_waiting(account_.end(mark, *sync_));
  }
}

void Run::share_by(const PolicyChoice& choice) {
  if (!choice.split_by_speed)
    shares_.even();
  else if (const auto speeds = auto_->speeds(); !speeds.empty())  // not where a checkpoint brings the shares
    shares_.give(speeds);
}

void Run::adopt(const PolicyChoice& choice) {
  const bool is_another = choice.sync != policy_in_use();
  choice_ = choice;
  share_by(choice);
  if (!is_another) return;
  if (auto_) auto_->forget_steps();
  renew_synchronizer(choice.sync);
}

// ---- Plans.

// Nothing is under way between two steps.
void Run::judge_plan(const TrainEvents& events) {
  const auto gradient_bytes = static_cast<double>(memory_of(buckets_.gradients()).size_bytes());
  auto changed = plan_.judge(step_, comm_, events.replan, gradient_bytes, gradient_exchange().momentum() > 0);
  if (!changed) return;
  send_by({changed->change.compress, changed->change.bucket_bytes});
  note(std::move(*changed), events);
}

// All have stopped, which is when policies may change.
void Run::judge_pace(const TrainEvents& events) {
  auto changed = plan_.judge_pace(step_, comm_);
  if (!changed) return;
  leave_plan();
  auto_->add_pushes(own_pace_->waited(), own_pace_->exchanges());
  note(std::move(*changed), events);
}

void Run::note(ChangedPlan changed, const TrainEvents& events) {
  result_.changes.push_back(std::move(changed));
  if (speaks() && events.on_change) events.on_change(result_.changes.back());
}

void Run::leave_plan() {
  plan_.leave();
  measure_for_policies();
  choice_ = {.sync = settings_.sync};
}

// From now on. What the codec before held back is lost.
void Run::send_by(const Sending& next) {
  const Sending before = plan_.sending();
  plan_.send_by(next);
  const Sending& now = plan_.sending();
  if (now.bucket_bytes != before.bucket_bytes) buckets_.cut(now.bucket_bytes);
  if (now.compress != before.compress) renew_synchronizer(policy_in_use());
}

}  // namespace ranvier::trainer
