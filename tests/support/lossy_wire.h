// Packets that get lost on purpose: in a program that this is part of, sendmmsg(2) loses packets of messages that
// tolerate it (PartialMessages), by a seed in what they carry, so that no thread's pace changes which ones.
#pragma once

#include <atomic>

namespace ranvier::support {

inline std::atomic<double> lost_share = 0;  // of packets that carry pieces
// What is sent again so often arrives. More than 1: only of messages that have to be whole anything is lost.
inline std::atomic<int> times_lost = 1;

void forget_what_was_lost();

struct Loses {
  explicit Loses(double share, int times = 1) {
    lost_share = share;
    times_lost = times;
  }
  ~Loses() {
    lost_share = 0;
    times_lost = 1;
  }
  Loses(const Loses&) = delete;
  Loses& operator=(const Loses&) = delete;
};

}  // namespace ranvier::support
