#include "integrations/trainer/step_times.h"

#include <algorithm>
#include <array>

namespace ranvier::trainer {
namespace {

StepSeconds middle_of(std::vector<StepSeconds> steps) {
  if (steps.empty()) return {};
  const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
  std::ranges::nth_element(steps, middle, {}, &StepSeconds::step);
  return *middle;
}

StepSeconds mean_of(const std::vector<StepSeconds>& steps) {
  StepSeconds mean;
  for (const StepSeconds& each : steps) {
    mean.step += each.step / static_cast<double>(steps.size());
    mean.waiting += each.waiting / static_cast<double>(steps.size());
  }
  return mean;
}

StepSeconds mean_over_workers(const StepSeconds& own, Communicator& comm) {
  std::array<double, 2> mean{own.step, own.waiting};
  comm.all_reduce(mean, {.op = ReduceOp::average});
  return {mean[0], mean[1]};
}

}  // namespace

void StepTimes::add(std::chrono::nanoseconds step, std::chrono::nanoseconds waiting) {
  using Duration = std::chrono::duration<double>;
  steps_.push_back({Duration(step).count(), Duration(waiting).count()});
}

std::vector<StepSeconds> StepTimes::warm() const {
  return {steps_.begin() + (steps_.size() > 2 * warm_up_steps ? warm_up_steps : 0), steps_.end()};
}

StepSeconds StepTimes::median(Communicator& comm) const { return mean_over_workers(middle_of(warm()), comm); }

StepSeconds StepTimes::mean(Communicator& comm) const { return mean_over_workers(mean_of(warm()), comm); }

std::vector<StepSeconds> StepTimes::last(std::size_t count) const {
  return {steps_.end() - static_cast<std::ptrdiff_t>(count), steps_.end()};
}

StepSeconds StepTimes::median_of_last(std::size_t count, Communicator& comm) const {
  return mean_over_workers(middle_of(last(count)), comm);
}

StepSeconds StepTimes::mean_of_last(std::size_t count, Communicator& comm) const {
  return mean_over_workers(mean_of(last(count)), comm);
}

}  // namespace ranvier::trainer
