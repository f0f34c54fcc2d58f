#include "integrations/trainer/step_times.h"

#include <algorithm>
#include <array>

namespace ranvier::trainer {

void StepTimes::add(std::chrono::nanoseconds step, std::chrono::nanoseconds waiting) {
  using Duration = std::chrono::duration<double>;
  steps_.push_back({Duration(step).count(), Duration(waiting).count()});
}

StepSeconds StepTimes::median(Communicator& comm) const {
  std::array<double, 2> mean{};
  // Without those that warm up, where there are others.
  std::vector<StepSeconds> sorted(steps_.begin() + (steps_.size() > 2 * warm_up ? warm_up : 0), steps_.end());
  if (!sorted.empty()) {
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::ranges::nth_element(sorted, middle, {}, &StepSeconds::step);
    mean = {middle->step, middle->waiting};
  }
  comm.all_reduce(mean, {.op = ReduceOp::average});
  return {mean[0], mean[1]};
}

}  // namespace ranvier::trainer
