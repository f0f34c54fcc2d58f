#include "integrations/trainer/async_training.h"

#include <numeric>
#include <utility>

namespace ranvier::trainer {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t batches_to_measure = 10;

}  // namespace

AsyncTraining::AsyncTraining(Communicator& comm, const SyncPolicy& policy, AsyncWorker worker, std::size_t batch,
                             std::uint64_t done)
    : comm_(comm),
      rule_(policy.groups()),
      worker_(std::move(worker)),
      batch_(batch),
      server_(comm, policy.server().value(), worker_.parameters, done),
      shares_(static_cast<std::size_t>(comm.world()), batch),
      groups_(shares_.size()) {
  std::iota(groups_.begin(), groups_.end(), 0);
}

void AsyncTraining::run(std::uint64_t stop_at) {
  if (!group_) form_groups();
  for (;;) {
    const auto asked = steady_clock::now();
    const auto part = group_->begin(stop_at);
    waited_ += steady_clock::now() - asked;
    if (!part.goes_on) break;
    worker_.compute(part.first, part.count);
    const auto computed = steady_clock::now();
    group_->exchange(worker_.gradients, worker_.rate(part.done), worker_.parameters);
    waited_ += steady_clock::now() - computed;
    ++pushes_;
  }
  comm_.barrier();  // the last ones have pushed
  server_.pull(worker_.parameters);
  if (rule_) form_groups();
}

// First by what some batches take that change nothing, then whenever speeds have changed.
void AsyncTraining::form_groups() {
  if (rule_) {
    if (!group_)
      for (std::size_t i = 0; i < batches_to_measure; ++i) worker_.compute(0, batch_);
    auto speeds = worker_.speeds();
    if (group_ && !have_drifted(speeds_, speeds)) return;
    speeds_ = std::move(speeds);
    shares_ = share_by_speed(batch_ * shares_.size(), speeds_);
    groups_ = group_by_speed(speeds_, *rule_);
  }
  group_ = std::make_unique<AsyncGroup>(comm_, server_, groups_, shares_);
}

}  // namespace ranvier::trainer
