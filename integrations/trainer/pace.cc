#include "integrations/trainer/pace.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <thread>

namespace ranvier::trainer {

using std::chrono::nanoseconds;

Pace::~Pace() {
  if (statistics_ >= 0) ::close(statistics_);
}

// "computed waited times", in nanoseconds, of which the first is counted at the scheduler's ticks only:
// Documentation/scheduler/sched-stats.rst of Linux. A kernel without them has nobody wait.
Pace::Moment Pace::now() {
  timespec on_processor{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &on_processor);
  Moment moment{.computed = std::chrono::seconds(on_processor.tv_sec) + nanoseconds(on_processor.tv_nsec),
                .waited = {}};
  std::array<char, 80> text{};
  if (statistics_ >= 0 && ::pread(statistics_, text.data(), text.size() - 1, 0) > 0) {
    char* second = nullptr;
    (void)std::strtoll(text.data(), &second, 10);
    moment.waited = nanoseconds(std::strtoll(second, nullptr, 10));
  }
  return moment;
}

nanoseconds Pace::at_full_speed(nanoseconds computed) const {
  return sample_ms_ > 0 ? nanoseconds(static_cast<std::int64_t>(sample_ms_ * 1e6 * samples_)) : computed;
}

void Pace::begin(std::uint64_t step, std::size_t samples) {
  step_ = step;
  samples_ = static_cast<double>(samples);
  if (statistics_ < 0) statistics_ = ::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  began_ = now();
}

void Pace::before_backward() {
  const Moment forward = now() - began_;
  slowness_now_ = slowness_.of(step_);
  const nanoseconds computed = forward.computed + backward_.computed;
  const auto lasts = static_cast<double>(at_full_speed(computed).count()) * slowness_now_;
  const nanoseconds is_left =
      nanoseconds(static_cast<std::int64_t>(lasts)) - computed - forward.waited - backward_.waited;
  slept_ = std::max(is_left, nanoseconds::zero());
  if (slept_ > nanoseconds::zero()) std::this_thread::sleep_for(slept_);
  backward_began_ = now();
}

void Pace::end() {
  const Moment ended = now();
  backward_ = ended - backward_began_;
  const std::chrono::duration<double> usual = at_full_speed((ended - began_).computed);
  steps_.add(usual.count() * slowness_now_ / samples_);
}

}  // namespace ranvier::trainer
