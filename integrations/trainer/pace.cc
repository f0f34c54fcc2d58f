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

void Pace::begin(std::uint64_t step) {
  step_ = step;
  if (statistics_ < 0) statistics_ = ::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  began_ = now();
}

void Pace::before_backward() {
  const Moment forward = now() - began_;
  slowness_now_ = slowness_.of(step_);
  const auto computing = static_cast<double>((forward.computed + backward_.computed).count());
  const auto late = nanoseconds(static_cast<std::int64_t>(computing * (slowness_now_ - 1)));
  slept_ = std::max(late - forward.waited - backward_.waited, nanoseconds::zero());
  if (slept_ > nanoseconds::zero()) std::this_thread::sleep_for(slept_);
  backward_began_ = now();
}

void Pace::end(std::size_t samples) {
  const Moment ended = now();
  backward_ = ended - backward_began_;
  const std::chrono::duration<double> computed = (ended - began_).computed;
  steps_.add(computed.count() * slowness_now_ / static_cast<double>(samples));
}

}  // namespace ranvier::trainer
