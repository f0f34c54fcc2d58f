// How long a packet and its acknowledgement take: V. Paxson, M. Allman, J. Chu, M. Sargent, "Computing TCP's
// Retransmission Timer", RFC 6298, 2011. A smoothed mean and a smoothed deviation, from which follows after how long
// silence means loss. Beside them the least one, which is the path without its queues.
#pragma once

#include <algorithm>
#include <chrono>

namespace ranvier::transport {

class RoundTrip {
 public:
  using Duration = std::chrono::nanoseconds;

  // Of one packet, without what the receiver says that it held the acknowledgement back.
  void sample(Duration measured, Duration held_back) {
    latest_ = measured;
    least_ = sampled_ ? std::min(least_, measured) : measured;
    // What the peer claims never makes a round trip shorter than the path is (RFC 9002, 5.3).
    const Duration adjusted = measured - held_back >= least_ ? measured - held_back : measured;
    if (!sampled_) {
      smoothed_ = adjusted;
      deviation_ = adjusted / 2;
    } else {
      deviation_ += (std::max(smoothed_ - adjusted, adjusted - smoothed_) - deviation_) / 4;
      smoothed_ += (adjusted - smoothed_) / 8;
    }
    sampled_ = true;
  }

  bool sampled() const { return sampled_; }
  Duration smoothed() const { return sampled_ ? smoothed_ : unknown; }
  Duration latest() const { return sampled_ ? latest_ : unknown; }
  Duration least() const { return sampled_ ? least_ : unknown; }
  // Silence that is longer than this means that something was lost. `held_back`: the most that a receiver may wait
  // before it acknowledges.
  Duration timeout(Duration held_back) const {
    return sampled_ ? smoothed_ + std::max(4 * deviation_, granularity) + held_back : 3 * unknown;
  }

 private:
  // Before the first packet came back. RFC 6298 says a second, for paths across the world; ranks that train together
  // are nearer, and what is sent once too often then is one packet.
  static constexpr Duration unknown = std::chrono::milliseconds(50);
  static constexpr Duration granularity = std::chrono::milliseconds(1);  // of timers and schedulers

  bool sampled_ = false;
  Duration smoothed_{};
  Duration deviation_{};
  Duration latest_{};
  Duration least_{};
};

}  // namespace ranvier::transport
