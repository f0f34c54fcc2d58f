// TCP on the same line, as a list of packets: what a flow of CUBIC (RFC 9438) or of BBR's first version, as kernels
// have them, leaves to others. It always has something to send.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "transport/loss_recovery.h"

namespace ranvier::support {

class TcpRival {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::nanoseconds;
  static constexpr std::size_t packet_bytes = 1500, acknowledgement_bytes = 52;

  virtual ~TcpRival() = default;

  // Whether a packet leaves now; its number.
  bool next_packet(Time now, std::uint64_t& number) {
    if (recovery_.probe()) {
      recovery_.probed();
    } else {
      if (static_cast<double>(recovery_.in_flight()) + packet_bytes > window()) return false;
      if (departs_at_ <= now) group_ends_at_ = now + seconds(group_bytes() / std::max(pacing_rate(), 1.0));
      if (departs_at_ > now && departs_at_ >= group_ends_at_) return false;
    }
    number = recovery_.next_number();
    transport::SentPacket packet;
    packet.payload = packet.bytes = packet_bytes;
    recovery_.sent(packet, now);
    if (pacing_rate() > 0)
      departs_at_ = std::max(departs_at_, now - std::chrono::milliseconds(1)) + seconds(packet_bytes / pacing_rate());
    return true;
  }

  void acknowledged(Time now, std::uint64_t number, Time arrived) {
    const std::array range{transport::NumberRange{number, number + 1}};
    if (const auto news = recovery_.acknowledge(range, {}, transport::WayBack::microseconds(arrived), now))
      learn(*news, now);
  }

  Time due(Time now) const {
    Time due = recovery_.due();
    if (static_cast<double>(recovery_.in_flight()) + packet_bytes <= window())
      due = std::min(due, departs_at_ < group_ends_at_ ? now : std::max(now, departs_at_));
    return due;
  }

  void on_time(Time now) {
    if (recovery_.due() > now) return;
    const int before = recovery_.silences();
    const auto news = recovery_.on_time(now);
    learn(news, now);
    if (recovery_.silences() > before) timed_out();
  }

  std::uint64_t delivered_bytes() const { return delivered_; }
  std::uint64_t packets_lost() const { return recovery_.packets_lost(); }

 protected:
  virtual double window() const = 0;                // bytes
  virtual double pacing_rate() const { return 0; }  // bytes a second; 0: none
  virtual double group_bytes() const { return 0; }  // that leave at once
  virtual void controls(const transport::LossRecovery::News&, Time) = 0;
  virtual void timed_out() = 0;

  transport::LossRecovery recovery_;

 private:
  void learn(const transport::LossRecovery::News& news, Time now) {
    delivered_ = news.sample.delivered;
    controls(news, now);
  }

  static Duration seconds(double count) {
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(count));
  }

  std::uint64_t delivered_ = 0;
  Time departs_at_{}, group_ends_at_{};
};

class CubicRival : public TcpRival {
 protected:
  double window() const override { return packets_ * packet_bytes; }

  void controls(const transport::LossRecovery::News& news, Time now) override {
    const double rtt = std::chrono::duration<double>(recovery_.round_trip().smoothed()).count();
    const double acknowledged = static_cast<double>(news.sample.acknowledged) / packet_bytes;
    for (const auto& packet : news.lost) {
      if (packet.number < recovery_until_) continue;
      recovery_until_ = recovery_.next_number();
      most_ = packets_ < most_ ? packets_ * (1 + beta) / 2 : packets_;  // fast convergence
      packets_ = threshold_ = std::max(2.0, packets_ * beta);
      epoch_ = {};
    }
    if (news.acknowledged.empty() || news.acknowledged.back().number < recovery_until_) return;
    if (packets_ < threshold_) {
      // HyStart: the queue grows.
      const auto least = recovery_.round_trip().least();
      const auto margin = std::clamp<Duration>(least / 8, std::chrono::milliseconds(4), std::chrono::milliseconds(16));
      if (packets_ > 16 && recovery_.round_trip().latest() > least + margin) threshold_ = packets_;
      packets_ += acknowledged;
      return;
    }
    if (epoch_ == Time()) {
      epoch_ = now;
      began_at_ = estimate_ = packets_;
      if (most_ < packets_) most_ = packets_;
      k_ = std::cbrt((most_ - began_at_) / 0.4);
    }
    const double t = std::chrono::duration<double>(now - epoch_).count() + rtt;
    const double target = std::clamp(0.4 * std::pow(t - k_, 3) + most_, packets_, 1.5 * packets_);
    estimate_ += 3 * (1 - beta) / (1 + beta) * acknowledged / packets_;
    packets_ += (target - packets_) / packets_ * acknowledged;
    packets_ = std::max(packets_, estimate_);
  }

  void timed_out() override {
    threshold_ = std::max(2.0, packets_ * beta);
    packets_ = 1;
    epoch_ = {};
    recovery_until_ = recovery_.next_number();
  }

 private:
  static constexpr double beta = 0.7;
  double packets_ = 10;
  double threshold_ = 1e9;
  double most_ = 0, began_at_ = 0, estimate_ = 0, k_ = 0;
  Time epoch_{};
  std::uint64_t recovery_until_ = 0;
};

// Another like the one that is tested.
class ModelRival : public TcpRival {
 public:
  // `line`: bytes a second, as it would have measured it; 0: it has not.
  explicit ModelRival(double line = 0) : line_(line) {}
  const transport::Bbr& bbr() const { return rate_; }

 protected:
  double window() const override { return static_cast<double>(rate_.window()); }
  double pacing_rate() const override { return rate_.pacing_rate(); }
  double group_bytes() const override { return static_cast<double>(rate_.group_bytes()); }
  void controls(const transport::LossRecovery::News& news, Time) override {
    transport::Bbr::Sample sample = news.sample;
    sample.line = line_;
    rate_.acknowledged(sample);
  }
  void timed_out() override {}

 private:
  transport::Bbr rate_{packet_bytes};
  double line_;
};

// BBR's first version as kernels have it: no loss makes it slower.
class BbrRival : public ModelRival {
 protected:
  void controls(const transport::LossRecovery::News& news, Time now) override {
    auto deaf = news;
    deaf.sample.lost = 0;
    ModelRival::controls(deaf, now);
  }
};

}  // namespace ranvier::support
