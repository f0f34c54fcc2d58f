// Giving the core away while waiting, as long as that pays.
//
// Among ranks that all wait for each other a core that is given away comes back within a microsecond. Where somebody
// computes, it comes back when his time slice is over, milliseconds later, and Linux's scheduler (EEVDF: Stoica and
// Abdel-Wahab, 1995; kernel/sched/fair.c, yield_task_fair) charges whoever yielded as if the rest of his own slice had
// been used, which at low priority is a long time. So ranks that yield again and again starve beside other work, and
// make all those wait who wait for them: 20 steps of training took minutes beside a compiler. Who sleeps instead is
// charged nothing, and goes first once there is something for him.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "base/ticks.h"

namespace ranvier::engine {

// Of one rank; any thread.
class CoreSharing {
 public:
  // Whether the core would most likely come back soon; whoever waits sleeps, if not.
  bool pays(std::uint64_t now = ticks()) const {
    return static_cast<std::int64_t>(now - not_before_.load(std::memory_order_relaxed)) >= 0;
  }

  void yield() {
    const std::uint64_t before = ticks();
    sched_yield();
    note(before, ticks());
  }

  // That a core was given away, and came back. A long absence is not risked again before ten times as long has passed:
  // a tenth of the time at most is lost by it.
  void note(std::uint64_t given, std::uint64_t back) {
    if (const std::uint64_t away = back - given; away > long_absence)
      not_before_.store(back + 10 * away, std::memory_order_relaxed);
  }

  // Some milliseconds on processors of today, where a tick is that of the time-stamp counter. Ranks that reduce slices
  // on the core keep it for less.
  static constexpr std::uint64_t long_absence = 3'000'000;

 private:
  std::atomic<std::uint64_t> not_before_ = ticks();
};

}  // namespace ranvier::engine
