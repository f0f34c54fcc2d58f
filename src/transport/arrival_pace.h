// How fast bytes have come on a stream lately, so that whoever waits for more knows whether to ask again or to sleep.
//
// On a slow line packets come one by one: whoever asks for them as fast as he can gets a kilobyte or two each time,
// and spends the core that others compute on. At 100 Mbit/s each rank made 50 calls of the kernel for each packet.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace ranvier::transport {

// Times are ticks().
class ArrivalPace {
 public:
  static constexpr std::size_t sample_bytes = 64 << 10;
  // What pays for falling asleep and being woken, which take 50 microseconds: 300 or more.
  static constexpr std::uint64_t long_wait = 1'000'000;
  // Whoever sleeps wants to be awake so long before the last byte comes.
  static constexpr std::uint64_t early = 300'000;

  void came(std::size_t bytes, std::uint64_t now) {
    const bool rested = now - last_ > rest;
    last_ = now;
    if (rested) {  // how long these took nobody knows: they were not asked for
      began_ = now;
      bytes_ = 0;
      return;
    }
    bytes_ += bytes;
    if (bytes_ < sample_bytes) return;
    const std::uint64_t sample = (now - began_) * sample_bytes / bytes_;
    began_ = now;
    bytes_ = 0;
    // A core that was away for a moment makes a fast line look slow for one; what the kernel had kept meanwhile makes
    // a slow one look fast.
    slow_ = std::clamp(slow_ + (sample >= long_wait ? 1 : -2), 0, most_slow);
    if (sample >= long_wait) ticks_of_sample_ = sample;
  }

  // Until so many have come; 0 where the stream is not known to be slow.
  std::uint64_t ticks_for(std::size_t bytes) const {
    return slow_ < enough_slow ? 0 : ticks_of_sample_ * bytes / sample_bytes;
  }

  // Of so many, how many will have come when it is time to wake up.
  std::size_t before_waking(std::size_t bytes) const {
    const std::uint64_t ticks = ticks_for(bytes);
    return ticks <= early ? 0 : bytes - bytes * early / ticks;
  }

 private:
  static constexpr std::uint64_t rest = 30'000'000;  // longer than a packet takes on lines of 1 Mbit/s
  static constexpr int enough_slow = 4, most_slow = 8;

  std::uint64_t last_ = 0, began_ = 0;
  std::size_t bytes_ = 0;  // since then
  std::uint64_t ticks_of_sample_ = 0;
  int slow_ = 0;
};

}  // namespace ranvier::transport
