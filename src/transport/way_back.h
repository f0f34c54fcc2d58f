// How long acknowledgements are under way beyond what the path itself takes: behind others' packets, mostly this peer's
// own, for collectives fill both directions. What has arrived meanwhile is still counted as under way, though it takes
// no room on its way any more.
//
// A round trip beyond the least one is the packet's wait and the acknowledgement's. The clocks of two hosts tell the
// first: they show different times, but the difference grows with the packet's wait only (as in LEDBAT, S. Shalunov, G.
// Hazel, J. Iyengar, M. Kuehlewind, RFC 6817, 2012). Since they also run apart, by some 1e-4, what was least is
// forgotten after a while.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace ranvier::transport {

class WayBack {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::nanoseconds;

  static std::uint32_t microseconds(Time time) {
    return static_cast<std::uint32_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count());
  }

  // Of a packet that left at `sent_at`, arrived at `arrived_us` of the other's clock and was acknowledged `now`, a time
  // of `beyond` more than ever took. Returns the acknowledgement's part of that.
  Duration sample(Time sent_at, std::uint32_t arrived_us, Time now, Duration beyond) {
    const std::uint32_t difference = arrived_us - microseconds(sent_at);
    if (!sampled_) {
      sampled_ = true;
      first_ = difference;
      since_ = now;
    }
    const std::chrono::microseconds there(static_cast<std::int32_t>(difference - first_));
    // Where the queue was never empty since, what is least says nothing of the clocks.
    if (now - since_ > remembered && (was_empty_ || now - since_ > longest_remembered)) {
      before_ = least_;
      least_ = there;
      since_ = now;
      was_empty_ = false;
    }
    was_empty_ |= beyond < noise;
    least_ = std::min(least_, there);
    const Duration waited = there - std::min(least_, before_);
    return std::clamp<Duration>(beyond - waited, Duration(0), longest);
  }

 private:
  static constexpr auto remembered = std::chrono::seconds(5);  // twice; Bbr empties its queue as often
  static constexpr auto longest_remembered = std::chrono::seconds(60);
  static constexpr auto noise = std::chrono::milliseconds(1);
  static constexpr auto longest = std::chrono::milliseconds(200);  // a queue; what is longer is no measurement

  bool sampled_ = false;
  bool was_empty_ = false;
  std::uint32_t first_ = 0;
  Time since_{};
  // Relative to the first, in this period and the one before.
  std::chrono::microseconds least_{}, before_{};
};

}  // namespace ranvier::transport
