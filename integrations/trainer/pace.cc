#include "integrations/trainer/pace.h"

#include <algorithm>
#include <ctime>
#include <thread>

namespace ranvier::trainer {
namespace {

using std::chrono::nanoseconds;

nanoseconds processor_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + nanoseconds(now.tv_nsec);
}

}  // namespace

void Pace::begin(std::uint64_t step) {
  began_ = processor_time();
  step_ = step;
}

void Pace::before_backward() {
  backward_began_ = processor_time();
  const auto computing = static_cast<double>((backward_began_ - began_ + backward_).count());
  slept_ = nanoseconds(static_cast<std::int64_t>(computing * (slowness_.of(step_) - 1)));
  if (slept_ > nanoseconds::zero()) std::this_thread::sleep_for(slept_);
}

void Pace::end(std::size_t samples) {
  const auto now = processor_time();
  backward_ = now - backward_began_;
  const std::chrono::duration<double> all = now - began_ + slept_;
  times_.push_back(all.count() / static_cast<double>(samples));
}

PaceReport Pace::report() {
  if (times_.empty()) return {};
  if (is_warm_up_ && times_.size() > std::size_t{2 * warm_up}) times_.erase(times_.begin(), times_.begin() + warm_up);
  is_warm_up_ = false;
  const auto middle = times_.begin() + static_cast<std::ptrdiff_t>(times_.size() / 2);
  std::ranges::nth_element(times_, middle);
  PaceReport report{.seconds_per_sample = *middle};
  double late_sum = 0;
  double late = 0;
  for (const double time : times_) {
    if (time <= 2 * report.seconds_per_sample) continue;
    late_sum += time;
    ++late;
  }
  report.late_share = late / static_cast<double>(times_.size());
  if (late > 0) report.late_factor = late_sum / late / report.seconds_per_sample;
  times_.clear();
  return report;
}

}  // namespace ranvier::trainer
