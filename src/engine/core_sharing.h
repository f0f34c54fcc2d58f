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
//
// What is long depends on how many share a core: each of the others may use a slice of time. And one absence alone, as
// when ranks start one after another, says little of those to come, for which ten times as long would pass until the
// next yield; it costs what can be saved up. Where what was waited for is still not there afterwards, others needed the
// core, and nothing is lost. (Without these three, some of 16 ranks on two cores slept for seconds, and all waited for
// them: 4 bytes in 100 to 400 us rather than 15.)
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/ticks.h"

namespace ranvier::engine {

// Of one rank; any thread.
class CoreSharing {
 public:
  explicit CoreSharing(int ranks_per_core, std::uint64_t now = ticks())
      : long_absence_(slice * static_cast<std::uint64_t>(std::max(ranks_per_core - 1, 1))) {
    forget(now);
  }

  // As at the start: what was lost while ranks met, and their processes started, says nothing of what follows.
  void forget(std::uint64_t now = ticks()) {
    not_before_.store(now - price * most_saved(), std::memory_order_relaxed);
    last_longest_.store(now - long_ago, std::memory_order_relaxed);
  }

  // Whether the core would most likely come back soon; whoever waits sleeps, if not.
  bool pays(std::uint64_t now = ticks()) const {
    return static_cast<std::int64_t>(now - not_before_.load(std::memory_order_relaxed)) >= 0;
  }

  // How long the core was away.
  static std::uint64_t yield() {
    const std::uint64_t before = ticks();
    sched_yield();
    return std::max(ticks() - before, std::uint64_t{1});
  }

  // That what the core was given away for was there when it came back: nobody had to sleep, or it was late for that.
  // Where it was not, the others needed the core, and the absence cost nothing.
  void came(std::uint64_t away, std::uint64_t now = ticks()) {
    if (away <= long_absence_) return pay(now, std::uint64_t{0} - sleep);
    if (away <= most_saved()) return pay(now, away);
    const std::uint64_t last = last_longest_.exchange(now, std::memory_order_relaxed);
    const bool alone = static_cast<std::int64_t>(now - away - last) >= static_cast<std::int64_t>(price * away);
    pay(now, alone ? most_saved() : away);
  }

  // In ticks of the time-stamp counter; a millisecond or so on processors of today. Ranks that reduce slices on the
  // core keep it for less.
  static constexpr std::uint64_t slice = 3'000'000;
  // What falling asleep costs the sleeper, and being woken, and what it costs whoever wakes him: 50 microseconds or so.
  static constexpr std::uint64_t sleep = 150'000;
  static constexpr std::uint64_t price = 10;  // of an absence or a sleep, in time that passes
  std::uint64_t most_saved() const { return 4 * long_absence_; }

 private:
  // A token bucket that is kept as one time: when all will be paid, or how long ago it was.
  void pay(std::uint64_t now, std::uint64_t ticks) {
    const std::uint64_t fullest = now - price * most_saved();
    std::uint64_t paid_at = not_before_.load(std::memory_order_relaxed);
    if (static_cast<std::int64_t>(paid_at - fullest) < 0) paid_at = fullest;
    not_before_.store(paid_at + price * ticks, std::memory_order_relaxed);
  }

  static constexpr std::uint64_t long_ago = std::uint64_t{1} << 62;

  const std::uint64_t long_absence_;
  std::atomic<std::uint64_t> not_before_;
  std::atomic<std::uint64_t> last_longest_;  // when the last absence ended that took longer than can be saved up
};

}  // namespace ranvier::engine
