#include "integrations/trainer/step_recorder.h"

#include <algorithm>
#include <numeric>

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

}  // namespace

void StepRecorder::begin_forward() {
  forward_begun_ = Clock::now();
  passed_at_.clear();
  entered_ = {};
}

void StepRecorder::enter() {
  if (entered_ == Clock::time_point()) entered_ = Clock::now();
}

void StepRecorder::pass(std::size_t tensor) { passed_at_.emplace_back(tensor, Clock::now()); }

void StepRecorder::end_step(std::chrono::nanoseconds step, std::chrono::nanoseconds averaging) {
  double last = 0;
  for (const auto& [tensor, at] : ready_at_) {
    const double since = in_ns(at - backward_begun_);
    ready_[tensor].push_back(since);
    last = std::max(last, since);
  }
  ready_at_.clear();
  const double forward = in_ns(backward_begun_ - forward_begun_);
  std::vector<double> of(forward_of_.size());
  auto before = entered_;
  for (const auto& [tensor, at] : passed_at_) {
    of[tensor] += in_ns(at - before);
    before = at;
  }
  for (std::size_t tensor = 0; tensor < of.size(); ++tensor) forward_of_[tensor].push_back(of[tensor]);
  forward_.push_back(forward - std::accumulate(of.begin(), of.end(), 0.0));
  other_.push_back(in_ns(step - averaging) - forward - last);
}

RecordedStep StepRecorder::finish(Communicator& comm, std::vector<RecordedTensor> tensors) const {
  std::vector<double> means{warm_median(forward_), warm_median(other_)};
  for (const auto& times : ready_) means.push_back(warm_median(times));
  for (const auto& times : forward_of_) means.push_back(warm_median(times));
  comm.all_reduce(means, {.op = ReduceOp::average});
  RecordedStep result{.forward_ns = means[0], .other_ns = std::max(0.0, means[1]), .steps = forward_.size()};
  const auto ready_ns = [&](std::size_t tensor) { return means[2 + tensor]; };
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return ready_ns(a) < ready_ns(b); });
  double before = 0;
  for (const std::size_t tensor : order) {
    tensors[tensor].forward_ns = means[2 + tensors.size() + tensor];
    tensors[tensor].compute_ns = ready_ns(tensor) - before;
    before = ready_ns(tensor);
    result.tensors.push_back(std::move(tensors[tensor]));
  }
  return result;
}

}  // namespace ranvier::trainer
