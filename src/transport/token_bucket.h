// How much may be sent by now at a given rate (a token bucket; ITU-T I.371). No clock of its own: callers say what time
// it is. Spending may overdraw it: a message goes whole, and the next waits until the debt is paid.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace ranvier::transport {

class TokenBucket {
 public:
  using Time = std::chrono::steady_clock::time_point;

  TokenBucket(double bytes_per_second, double burst_bytes, Time now)
      : rate_(bytes_per_second), burst_(burst_bytes), tokens_(burst_bytes), filled_at_(now) {}

  bool has_tokens(Time now) {
    const std::chrono::duration<double> passed = now - filled_at_;
    filled_at_ = now;
    tokens_ = std::min(burst_, tokens_ + passed.count() * rate_);
    return tokens_ > 0;
  }
  void spend(std::size_t bytes) { tokens_ -= static_cast<double>(bytes); }

  // From the last has_tokens() until the next one that says yes; rounded up.
  std::chrono::nanoseconds until_tokens() const {
    if (tokens_ > 0) return {};
    return std::chrono::nanoseconds(static_cast<std::int64_t>(std::ceil(-tokens_ / rate_ * 1e9)) + 1);
  }

 private:
  double rate_;
  double burst_;
  double tokens_;
  Time filled_at_;
};

}  // namespace ranvier::transport
