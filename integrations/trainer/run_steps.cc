// What a worker does in a step of its run: gradients, the optimizer, exchanges, and what all that took.
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <vector>

#include "integrations/trainer/forward_watch.h"
#include "integrations/trainer/run.h"
#include "replica/gather_paces.h"

namespace ranvier::trainer {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

namespace {

// Whether the group of `rank` has members in another node.
bool spans_nodes(const std::vector<int>& groups, const std::vector<int>& nodes, Rank rank) {
  const auto own = static_cast<std::size_t>(rank);
  for (std::size_t peer = 0; peer < groups.size(); ++peer)
    if (groups[peer] == groups[own] && nodes[peer] != nodes[own]) return true;
  return false;
}

}  // namespace

// The gradients of this worker's samples, in so many passes; the loss. `first`: as Pass has it.
double Run::compute(std::span<const std::int64_t> chosen, std::uint64_t first, bool is_shared) {
  pace_.begin(static_cast<std::uint64_t>(sampler_.steps(first)), chosen.size());
  buckets_.clear(is_shared);
  std::vector<Pass> passes(std::min(settings_.accumulate, chosen.size()));
  for (std::size_t number = 0; number < passes.size(); ++number) {
    const std::size_t from = chosen.size() * number / passes.size();
    const auto part = chosen.subspan(from, chosen.size() * (number + 1) / passes.size() - from);
    passes[number] = {.samples = part,
                      .share = static_cast<double>(part.size()) / static_cast<double>(chosen.size()),
                      .first = first + from};
  }
  std::optional<ForwardWatch> watch;
  const PassEvents events{.forward =
                              [this, &watch](std::size_t) {
                                if (!recorder_) return;
                                recorder_->begin_forward();
                                watch.emplace(buckets_.by_tensor(), *recorder_);
                              },
                          .backward =
                              [this, &watch, last = passes.size() - 1](std::size_t number) {
                                watch.reset();
                                buckets_.expect_another_pass(number < last);
                                if (number == last) pace_.before_backward();
                                if (recorder_) recorder_->begin_backward(number == last);
                              }};
  const double mean = task_->train(passes, is_shared ? sync_->gradient_weight() : 1, events);
  if (!chosen.empty()) pace_.end();
  return mean;
}

double Run::train_one_step() {
  // Who averages within his own node for a while would go on until the next average of all, and nodes with a lost one
  // not.
  if (sync_->policy().levels().size() > 1) comm_.check_alive();
  const auto mark = Account::begin(*sync_);
  const auto waited_for_parts = team_.waited();
  const auto sent_to_parts = team_.bytes_sent();
  const auto shares = shares_.of(sampler_.size(step_));
  if (sync_->policy().weighs_samples()) sync_->set_samples(std::vector<double>(shares.begin(), shares.end()));
  const std::size_t own = shares[static_cast<std::size_t>(comm_.rank())];
  const std::size_t first = std::accumulate(shares.begin(), shares.begin() + comm_.rank(), std::size_t{0});
  const bool is_shared = sync_->begin_step(step_);
  const double loss = compute(sampler_.part(step_, first, own), sampler_.before(step_) + first, is_shared);
  evaluator_.add_loss(loss, own);
  auto waited = buckets_.finish() + (team_.waited() - waited_for_parts);
  const double rate = rate_.at(static_cast<double>(step_));
  if (is_shared || own > 0) {  // else this worker has nothing to step by
    const at::NoGradGuard no_grad;
    optimizer_->step(buckets_.parameters(), buckets_.gradients(), rate);
  }
  ++step_;
  ++result_.steps_here;
  const auto stepped = steady_clock::now();
  sync_->end_step(step_, rate, memory_of(buckets_.parameters()));
  team_.align(common_);
  waited += steady_clock::now() - stepped;
  account_.add_model_bytes(team_.bytes_sent() - sent_to_parts);
  if ((settings_.split_by_speed || auto_) && is_window_over()) watch_speeds();
  account_.add_waiting(waited);
  if (auto_) auto_->add({.waited = waited, .hidden = buckets_.hidden(), .among_all = sync_->agreed()});
  keep(step_);
  const auto took = account_.end(mark, *sync_);
  if (recorder_)
    record(took, waited);
  else
    plan_.add_step(took, waited);
  return loss;
}

// Each worker at its own pace, until all together have done as many steps as `stop` of everybody's would be.
double Run::train_at_own_pace(std::size_t stop) {
  const auto mark = Account::begin(*sync_);
  own_pace_->prepare();
  const auto prepared = steady_clock::now();
  const auto waited_before = own_pace_->waited();
  const std::uint64_t exchanges_before = own_pace_->exchanges(), averages_before = own_pace_->averages();
  const auto groups = own_pace_->groups();
  own_pace_->run(sampler_.before(stop));
  account_.add_waiting(own_pace_->waited() - waited_before);
  plan_.add_steps(stop - step_, steady_clock::now() - prepared, own_pace_->waited() - waited_before);
  if (auto_) auto_->add_pushes(own_pace_->waited() - waited_before, own_pace_->exchanges() - exchanges_before);
  account_.add_rounds(own_pace_->exchanges() - exchanges_before, sync_->nodes() > 1);
  account_.add_rounds(own_pace_->averages() - averages_before,
                      spans_nodes(groups, sync_->node_of_rank(), comm_.rank()));
  result_.steps_here += stop - step_;
  step_ = stop;
  // Of peers, replicas differ now.
  if (sync_->policy().meets_peers())
    sync_->end_step(step_, rate_.at(static_cast<double>(step_)), memory_of(buckets_.parameters()));
  account_.end(mark, *sync_);
  keep(step_);
  return evaluator_.mean_loss();
}

OwnPaceWorker Run::own_pace_worker() {
  return {
      .compute =
          [this](std::uint64_t first, std::uint64_t samples) {
            if (samples > 0)
              evaluator_.add_loss(compute(sampler_.from(first, samples), first, false), samples);
            else
              buckets_.clear(false);
          },
      .try_pace = [this](std::uint64_t samples) { compute(sampler_.from(0, samples), sampler_.before(step_), false); },
      // The servers keep no momentum, since asynchrony adds some (Mitliagkas et al., "Asynchrony begets
      // Momentum", 2016): steps are as much longer as momentum would have made them by then.
      .rate = [this](std::uint64_t done) { return rate_.at(sampler_.steps(done)); },
      .server_rate =
          [this](std::uint64_t done) {
            const double step = sampler_.steps(done);
            return rate_.at(step) * (1 - std::pow(settings_.momentum, step + 1)) / (1 - settings_.momentum);
          },
      .momentum = settings_.momentum,
      .step =
          [this](std::uint64_t done) {
            const at::NoGradGuard no_grad;
            optimizer_->step(buckets_.parameters(), buckets_.gradients(), rate_.at(sampler_.steps(done)));
          },
      .keep = [this](std::uint64_t done) { keep(static_cast<std::size_t>(sampler_.steps(done))); },
      .paces = [this] { return replica::gather_paces(comm_, pace_.report(), {.timeout = longest_wait}); },
      .gradients = memory_of(buckets_.gradients()),
      .parameters = memory_of(buckets_.parameters())};
}

// One more window of what all have measured: shares follow it where they go by speed.
void Run::watch_speeds() {
  watched_at_ = step_;
  auto reports = replica::gather_paces(comm_, pace_.report());
  if (!auto_) return shares_.follow(reports);
  if (!auto_->add_paces(std::move(reports), result_.steps_here < steps_to_measure)) return;
  speeds_are_new_ = true;
  if ((change_ ? *change_ : choice_).split_by_speed) shares_.give(auto_->speeds());
}

// ---- What the first steps consist of.

void Run::record(nanoseconds took, nanoseconds waited) {
  recorder_->end_step(took, waited);
  if (recorder_->is_done() || step_ == last_step_) stop_recording();
}

void Run::stop_recording() {
  buckets_.record(nullptr);
  result_.recorded = recorder_->finish(buckets_.tensors());
  recorder_.reset();
}

}  // namespace ranvier::trainer
