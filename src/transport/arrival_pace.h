// How fast bytes have come on a stream lately, so that whoever waits for more knows whether to ask again or to sleep.
//
// On a slow line packets come one by one: whoever asks for them as fast as he can gets a kilobyte or two each time,
// and spends the core that others compute on. At 100 Mbit/s each rank made 50 calls of the kernel for each packet.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace ranvier::transport {

// Times are of one clock, whatever its unit.
class ArrivalPace {
 public:
  static constexpr std::size_t sample_bytes = 64 << 10;
  // What pays for falling asleep and being woken, which take 50 microseconds: 300 or more. In ticks(), and in
  // nanoseconds.
  static constexpr std::uint64_t ticks_of_long_wait = 1'000'000, ns_of_long_wait = 300'000;

  // `pauses`: a sample shows a slow line only if none of its pauses is longer than this part of it, for messages that
  // are far between take long on every line; 0: whatever they are.
  explicit ArrivalPace(std::uint64_t long_wait, std::uint64_t pauses = 0) : long_wait_(long_wait), pauses_(pauses) {}

  void came(std::size_t bytes, std::uint64_t now) {
    const std::uint64_t pause = now - last_;
    const bool rested = pause > 30 * long_wait_;  // longer than a packet takes on lines of 1 Mbit/s
    last_ = now;
    if (rested) {  // how long these took nobody knows: they were not asked for
      begin(now);
      return;
    }
    longest_pause_ = std::max(longest_pause_, pause);
    bytes_ += bytes;
    if (bytes_ < sample_bytes) return;
    const std::uint64_t took = now - began_, sample = took * sample_bytes / bytes_;
    const bool is_slow = sample >= long_wait_, is_even = longest_pause_ * pauses_ <= took;
    begin(now);
    // A core that was away for a moment makes a fast line look slow for one; what the kernel had kept meanwhile makes
    // a slow one look fast.
    if (!is_slow) slow_ = std::max(slow_ - 2, 0);
    if (!is_slow || !is_even) return;
    slow_ = std::min(slow_ + 1, most_slow);
    time_of_sample_ = sample;
  }

  // Until so many have come; 0 where the stream is not known to be slow.
  std::uint64_t time_for(std::size_t bytes) const {
    return slow_ < enough_slow ? 0 : time_of_sample_ * bytes / sample_bytes;
  }
  bool takes_long(std::size_t bytes) const { return time_for(bytes) >= long_wait_; }

  // Of so many, how many will have come when it is time to wake up.
  std::size_t before_waking(std::size_t bytes) const {
    const std::uint64_t time = time_for(bytes);
    return time <= early() ? 0 : bytes - bytes * early() / time;
  }
  // Whoever sleeps wants to be awake so long before the last byte comes.
  std::uint64_t early() const { return long_wait_ * 3 / 10; }

 private:
  static constexpr int enough_slow = 4, most_slow = 8;

  void begin(std::uint64_t now) {
    began_ = now;
    bytes_ = 0;
    longest_pause_ = 0;
  }

  std::uint64_t long_wait_, pauses_;
  std::uint64_t last_ = 0, began_ = 0;
  std::size_t bytes_ = 0;  // since then
  std::uint64_t longest_pause_ = 0;
  std::uint64_t time_of_sample_ = 0;
  int slow_ = 0;
};

}  // namespace ranvier::transport
