#include "integrations/trainer/step_recorder.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ranvier::trainer {
namespace {

double in_ns(std::chrono::nanoseconds time) { return static_cast<double>(time.count()); }

// Without the first few, where there are enough others.
double warm_median(std::vector<double> values) {
  if (values.size() > 2 * StepRecorder::warm_up)
    values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(StepRecorder::warm_up));
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void move_to(std::vector<PartsCall>& place, std::vector<PartsCall>& calls) {
  place.insert(place.end(), calls.begin(), calls.end());
  calls.clear();
}

}  // namespace

StepRecorder::StepRecorder(std::size_t tensors, ModelTeam& team)
    : team_(team),
      called_in_forward_(tensors + 1),
      called_in_backward_(tensors),
      forward_of_(tensors),
      ready_(tensors) {
  team_.record(this);
}

StepRecorder::~StepRecorder() { team_.record(nullptr); }

void StepRecorder::begin_forward() {
  place_ = Place::forward;
  ++passes_;
  pending_.clear();
  if (is_first_step())
    for (auto& calls : called_in_forward_) calls.clear();
  passed_at_.clear();
  entered_ = {};
  forward_begun_ = now();
}

void StepRecorder::enter() {
  if (entered_ == Clock::time_point()) entered_ = now();
}

void StepRecorder::pass(std::size_t tensor) {
  passed_at_.emplace_back(tensor, now());
  move_to(called_in_forward_[tensor], pending_);
}

void StepRecorder::begin_backward(bool is_last_pass) {
  if (place_ == Place::forward) {
    forward_took_ = now() - forward_begun_;
    move_to(called_in_forward_.back(), pending_);
  }
  place_ = is_last_pass ? Place::backward : Place::elsewhere;
  if (is_first_step())
    for (auto& calls : called_in_backward_) calls.clear();
  backward_begun_ = now();
}

void StepRecorder::ready(std::size_t tensor) {
  ready_at_.emplace_back(tensor, now());
  move_to(called_in_backward_[tensor], pending_);
}

void StepRecorder::communicate(const PartsCall& what) {
  if (is_first_step() && place_ != Place::elsewhere) pending_.push_back(what);
}

void StepRecorder::end_step(std::chrono::nanoseconds step, std::chrono::nanoseconds averaging) {
  if (!ready_at_.empty()) move_to(called_in_backward_[ready_at_.back().first], pending_);
  place_ = Place::elsewhere;
  const std::size_t passes = std::exchange(passes_, 0);
  if (is_first_step()) passes_of_a_step_ = passes;
  double last = 0;
  for (const auto& [tensor, at] : ready_at_) {
    const double since = in_ns(at - backward_begun_);
    ready_[tensor].push_back(since);
    last = std::max(last, since);
  }
  ready_at_.clear();
  const double forward = in_ns(forward_took_);
  std::vector<double> of(forward_of_.size());
  auto before = entered_;
  for (const auto& [tensor, at] : passed_at_) {
    of[tensor] += in_ns(at - before);
    before = at;
  }
  for (std::size_t tensor = 0; tensor < of.size(); ++tensor) forward_of_[tensor].push_back(of[tensor]);
  forward_.push_back(forward - std::accumulate(of.begin(), of.end(), 0.0));
  other_.push_back(in_ns(step - averaging) - static_cast<double>(passes) * (forward + last));
}

RecordedStep StepRecorder::finish(std::vector<RecordedTensor> tensors) const {
  const bool has_stages = team_.way() == Division::Way::pipeline;
  std::vector<double> means{warm_median(forward_), warm_median(other_)};
  for (const auto& times : ready_) means.push_back(warm_median(times));
  for (const auto& times : forward_of_) means.push_back(warm_median(times));
  (has_stages ? team_.replicas() : team_.world()).all_reduce(means, {.op = ReduceOp::average});
  const auto passes = static_cast<double>(passes_of_a_step_);
  const auto of_all_passes = [&](std::vector<PartsCall> calls) {
    for (PartsCall& call : calls) call.bytes *= passes;
    return calls;
  };
  RecordedStep result{.forward_ns = passes * means[0],
                      .in_forward = of_all_passes(called_in_forward_.back()),
                      .other_ns = std::max(0.0, means[1]),
                      .steps = forward_.size(),
                      .passes = passes_of_a_step_};
  const auto ready_ns = [&](std::size_t tensor) { return means[2 + tensor]; };
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return ready_ns(a) < ready_ns(b); });
  double before = 0;
  for (const std::size_t number : order) {
    RecordedTensor& tensor = tensors[number];
    tensor.forward_ns = passes * means[2 + tensors.size() + number];
    tensor.compute_ns = passes * (ready_ns(number) - before);
    tensor.in_forward = of_all_passes(called_in_forward_[number]);
    tensor.in_backward = of_all_passes(called_in_backward_[number]);
    before = ready_ns(number);
    result.tensors.push_back(std::move(tensor));
  }
  return has_stages ? longest_stage(std::move(result), team_.members()) : result;
}

}  // namespace ranvier::trainer
