#include "integrations/trainer/pace.h"

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
  steps_.add(all.count() / static_cast<double>(samples));
}

}  // namespace ranvier::trainer
