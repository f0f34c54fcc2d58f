// Staleness-aware rates: Zhang, Gupta, Lian and Liu, "Staleness-aware Async-SGD for Distributed Deep Learning", IJCAI
// 2016 (arXiv:1511.05950). Compensation: Zheng et al., "Asynchronous Stochastic Gradient Descent with Delay
// Compensation", ICML 2017 (arXiv:1609.08326): g + lambda g g (x - x_pulled), the square of the gradient standing for
// the Hessian's diagonal.
#include <algorithm>
#include <functional>
#include <string>

#include "kernel/vectors.h"
#include "ranvier/error.h"
#include "ranvier/server.h"

namespace ranvier {

Rank workers_of(const ServerRule& rule, Rank world) {
  if (rule.servers >= static_cast<std::size_t>(world))
    throw Error(ErrorKind::usage, "of " + std::to_string(world) + " workers " + std::to_string(rule.servers) +
                                      " are to be servers, which leaves nobody to train; take fewer servers");
  return world - static_cast<Rank>(rule.servers);
}

ParameterShard::ParameterShard(std::vector<float> values, Rank workers, const ServerRule& rule, Rank guests,
                               bool keeps_held)
    : rule_(rule),
      keeps_held_(keeps_held || rule.compensation > 0),
      values_(std::move(values)),
      own_workers_(static_cast<std::size_t>(workers)),
      workers_(static_cast<std::size_t>(workers + guests)) {
  if (keeps_held_)
    for (std::size_t worker = 0; worker < own_workers_; ++worker) workers_[worker].held = values_;
}

double ParameterShard::weight(double share, double overtaken) const {
  const double always = static_cast<double>(rule_.workers > 0 ? rule_.workers : own_workers_) - 1;
  switch (rule_.damping) {
    case ServerRule::Damping::share:
      return share;
    case ServerRule::Damping::staleness:
      return std::min(share, 1 / (overtaken + 1));
    case ServerRule::Damping::excess:
      return share / (1 + std::max(0.0, overtaken - always));
  }
  return share;
}

bool ParameterShard::push(Rank from, std::uint64_t number, double rate, double share, std::span<const float> gradient) {
  Worker& worker = workers_[static_cast<std::size_t>(from)];
  const bool is_guest = static_cast<std::size_t>(from) >= own_workers_;
  if (gradient.size() != values_.size() || (number > worker.last + 1 && !is_guest))
    throw Error(ErrorKind::mismatch,
                "a push to the parameter server has another size than its shard, or comes before "
                "one that is missing",
                from);
  if (number <= worker.last) return false;
  worker.last = number;
  const double overtaken = static_cast<double>(pushes_ - worker.pulled);
  const auto step = static_cast<float>(rate * weight(share, overtaken));
  if (rule_.compensation > 0 && !worker.held.empty()) {
    const auto lambda = static_cast<float>(rule_.compensation);
    compensated_.resize(values_.size());
    for (std::size_t i = 0; i < values_.size(); ++i)
      compensated_[i] = gradient[i] + lambda * gradient[i] * gradient[i] * (values_[i] - worker.held[i]);
    kernel::descend(compensated_.data(), step, values_.data(), values_.size());
  } else {
    kernel::descend(gradient.data(), step, values_.data(), values_.size());
  }
  ++pushes_;
  return true;
}

std::span<const float> ParameterShard::pull(Rank from) {
  Worker& worker = workers_[static_cast<std::size_t>(from)];
  worker.pulled = pushes_;
  const bool is_guest = static_cast<std::size_t>(from) >= own_workers_;
  if (rule_.compensation > 0 || (keeps_held_ && !is_guest)) worker.held = values_;
  return values_;
}

ParameterShard::Change ParameterShard::pull_change(Rank from) {
  Worker& worker = workers_[static_cast<std::size_t>(from)];
  worker.pulled = pushes_;
  return {values_, worker.held};
}

void StaleClocks::rests(Rank worker) {
  rests_[static_cast<std::size_t>(worker)] = true;
  if (std::ranges::all_of(rests_, std::identity())) std::ranges::fill(complete_, 0);
}

bool StaleClocks::may_begin(Rank worker) const {
  if (!bound_) return true;
  std::uint64_t slowest = complete_[static_cast<std::size_t>(worker)];
  for (std::size_t other = 0; other < complete_.size(); ++other)
    if (!rests_[other]) slowest = std::min(slowest, complete_[other]);
  return complete_[static_cast<std::size_t>(worker)] <= slowest + *bound_;
}

void SampleGate::asks(Rank worker, std::uint64_t stop_at, std::uint64_t most) {
  if (most == 0)
    clocks_.rests(worker);
  else
    clocks_.goes_on(worker);
  waiting_.push_back({worker, stop_at, most});
}

void SampleGate::ended_step(Rank worker, std::uint64_t samples) {
  clocks_.ended_step(worker);
  done_ += samples;
}

std::vector<SampleGate::Decision> SampleGate::decide() {
  std::vector<Decision> decisions;
  std::erase_if(waiting_, [&](const Waiting& each) {
    const std::uint64_t left = each.stop_at - std::min(next_, each.stop_at);
    if (left > 0 && each.most > 0 && !clocks_.may_begin(each.worker)) return false;
    decisions.push_back({each.worker, {.first = next_, .count = std::min(left, each.most), .done = done_}});
    next_ += decisions.back().start.count;
    return true;
  });
  return decisions;
}

}  // namespace ranvier
