// Giving the core away while waiting, as long as that pays.
//
// Among ranks that all wait for each other a core that is given away comes back within a microsecond. Where somebody
// computes, it comes back when his time slice is over, milliseconds later, and Linux's scheduler (EEVDF: Stoica and
// Abdel-Wahab, 1995; kernel/sched/fair.c, yield_task_fair) charges whoever yielded as if the rest of his own slice had
// been used, which at low priority is a long time. So ranks that yield again and again starve beside other work, and
// make all those wait who wait for them: 20 steps of training took minutes beside a compiler. Who sleeps instead is
// charged nothing, and goes first once there is something for him; but a sleep and its end cost both sides far more
// than a yield. So long absences are paid for: with the sleeps that yields spared, of which a few milliseconds' worth
// can be saved up, and with a tenth of the time that passes. (With time alone, four ranks on two cores slept through
// most of a measurement because each of them had prepared its buffers on another's core: 1 MiB in 370 us rather
// than 75.)
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "base/ticks.h"

namespace ranvier::engine {

// Of one rank; any thread.
class CoreSharing {
 public:
  explicit CoreSharing(std::uint64_t now = ticks()) : not_before_(now - price * most_saved) {}

  // Whether the core would most likely come back soon; whoever waits sleeps, if not.
  bool pays(std::uint64_t now = ticks()) const {
    return static_cast<std::int64_t>(now - not_before_.load(std::memory_order_relaxed)) >= 0;
  }

  void yield() {
    const std::uint64_t before = ticks();
    sched_yield();
    note(before, ticks());
  }

  // That a core was given away, and came back.
  void note(std::uint64_t given, std::uint64_t back) {
    if (const std::uint64_t away = back - given; away > long_absence) pay(back, away);
  }

  // That what a core was given away for has come, and nobody had to sleep.
  void spared_a_sleep(std::uint64_t now = ticks()) { pay(now, std::uint64_t{0} - sleep); }

  // In ticks of the time-stamp counter; some milliseconds on processors of today. Ranks that reduce slices on the core
  // keep it for less.
  static constexpr std::uint64_t long_absence = 3'000'000;
  // What falling asleep costs the sleeper, and being woken, and what it costs whoever wakes him: 50 microseconds or so.
  static constexpr std::uint64_t sleep = 150'000;
  static constexpr std::uint64_t most_saved = 4 * long_absence;
  static constexpr std::uint64_t price = 10;  // of an absence or a sleep, in time that passes

 private:
  // A token bucket that is kept as one time: when all will be paid, or how long ago it was.
  void pay(std::uint64_t now, std::uint64_t ticks) {
    const std::uint64_t fullest = now - price * most_saved;
    std::uint64_t paid_at = not_before_.load(std::memory_order_relaxed);
    if (static_cast<std::int64_t>(paid_at - fullest) < 0) paid_at = fullest;
    not_before_.store(paid_at + price * ticks, std::memory_order_relaxed);
  }

  std::atomic<std::uint64_t> not_before_;
};

}  // namespace ranvier::engine
