// What the slowest line of a path carries, whoever else uses it: from how far apart packets arrive that left together.
//
// A queue serves in turn, so packets that reach it right behind one another leave it right behind one another: the last
// of them arrives as long after the first as the line takes for what lies between (V. Jacobson, "Congestion Avoidance
// and Control", SIGCOMM 1988; C. Dovrolis, P. Ramanathan, D. Moore, "Packet-Dispersion Techniques and a
// Capacity-Estimation Methodology", IEEE/ACM Transactions on Networking 12(6), 2004). What others send meanwhile
// queues behind them. A rate of delivery, in contrast, is only what others leave.
//
// The sender marks each packet that left right behind the one before (PacketHeader::follows), the receiver measures by
// the kernel's times of arrival, and the median of what he tells is the line's rate: who is late to hand packets over
// makes some trains too short, and some others get between the packets of a few.
//
// Pure: no clock, no socket.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace ranvier::transport {

// At the receiver.
class PacketTrain {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void arrived(std::uint64_t number, bool follows, std::size_t bytes, Time at) {
    if (!follows || number != last_ + 1) {
      begun_ = at;
      bytes_ = 0;
    } else if (at > begun_) {  // packets that were handed over together have one time
      bytes_ += bytes;
      if (at - begun_ >= least)
        rate_ = static_cast<std::uint32_t>(static_cast<double>(bytes_) / milliseconds(at - begun_));
    }
    last_ = number;
  }

  // Bytes a millisecond, of the last train since this was asked; 0: there was none.
  std::uint32_t take() { return std::exchange(rate_, 0); }

 private:
  // Network cards hand packets over every some 50 microseconds, and together.
  static constexpr auto least = std::chrono::microseconds(80);

  static double milliseconds(Time::duration duration) {
    return std::chrono::duration<double, std::milli>(duration).count();
  }

  std::uint64_t last_ = 0;
  Time begun_{};
  std::size_t bytes_ = 0;
  std::uint32_t rate_ = 0;
};

// At the sender.
class LineRate {
 public:
  void told(double bytes_per_second) { rates_[count_++ % rates_.size()] = bytes_per_second; }

  // Bytes a second; 0: unknown.
  double rate() const {
    if (count_ < enough) return 0;
    auto rates = rates_;
    const auto end = rates.begin() + static_cast<std::ptrdiff_t>(std::min(count_, rates.size()));
    const auto middle = rates.begin() + (end - rates.begin()) / 2;
    std::ranges::nth_element(rates.begin(), middle, end);
    return *middle;
  }

 private:
  static constexpr std::size_t enough = 8;

  std::array<double, 32> rates_{};
  std::size_t count_ = 0;
};

}  // namespace ranvier::transport
