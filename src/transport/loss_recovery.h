// Which packets are under way, which have arrived, and which must be taken for lost.
//
// By time, after Y. Cheng, N. Cardwell, N. Dukkipati, P. Jha, "The RACK-TLP Loss Detection Algorithm for TCP", RFC
// 8985, 2021: a packet is lost when one that was sent later has been acknowledged and a round trip and a reordering
// window have passed since it left. Counting duplicate acknowledgements instead takes every path that reorders for a
// lossy one. The window is a quarter of the least round trip, and grows as packets that were taken for lost turn up
// after all. When nothing comes back at all, one packet goes out as a probe after the timeout of round_trip.h, which
// the acknowledgement of it then turns into the case above (RFC 8985, 7; RFC 9002, 6.2).
//
// From the same records comes the rate at which packets arrive (Y. Cheng, N. Cardwell, S. H. Yeganeh, V. Jacobson,
// "Delivery Rate Estimation", draft-cheng-iccrg-delivery-rate-estimation): what was delivered between the departure
// of a packet and its acknowledgement, divided by the longest of the times that sending, arriving and acknowledging
// took. Arriving is by the receiver's clock: acknowledgements that a queue held up come faster than packets arrived
// when it empties, as each time one of two that send to each other has nothing left to send.
//
// Pure: no clock, no socket. A packet costs 80 bytes here while it is under way.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ranvier/transport.h"
#include "transport/bbr.h"
#include "transport/number_ranges.h"
#include "transport/round_trip.h"
#include "transport/way_back.h"

namespace ranvier::transport {

struct SentPacket {
  using Time = std::chrono::steady_clock::time_point;
  enum class State : std::uint8_t { under_way, acknowledged, lost };

  std::uint64_t number = 0;
  std::uint64_t offset = 0;   // of its payload in `lane`
  std::uint32_t payload = 0;  // 0 for a probe
  std::uint32_t bytes = 0;    // of the datagram
  Lane lane = 0;
  bool sizes = false;  // it is a probe of that size: its loss says nothing of the path's load
  bool held_by_caller = false;
  State state = State::under_way;
  std::uint32_t arrived_us = 0;  // when it was sent, of the newest that had been acknowledged; 0: unknown
  Time sent_at{};
  // As they were when it was sent.
  std::uint64_t delivered = 0;
  Time delivered_at{};
  Time first_sent_at{};
};

class LossRecovery {
 public:
  using Time = SentPacket::Time;
  using Duration = std::chrono::nanoseconds;
  // The most that a receiver holds an acknowledgement back.
  static constexpr Duration most_delay = std::chrono::milliseconds(3);

  LossRecovery();

  std::uint64_t next_number() const { return next_; }
  // How far before the next number the oldest one is that an acknowledgement could still tell something about.
  std::uint32_t behind() const { return static_cast<std::uint32_t>(next_ - oldest_); }
  // `packet`: without its number and the delivery fields. It has next_number().
  void sent(SentPacket packet, Time now);
  // There is less to send than the path would take: the packets that are under way measure the caller.
  void held_by_caller();

  struct News {
    std::span<const SentPacket> acknowledged;  // valid until the next call
    std::span<const SentPacket> lost;
    Bbr::Sample sample;
  };
  // `ranges`: newest first; `arrived_us`: when the newest packet of all did, see way_back.h. Empty if they speak of
  // packets that were never sent.
  std::optional<News> acknowledge(std::span<const NumberRange> ranges, Duration delay, std::uint32_t arrived_us,
                                  Time now);

  // When on_time() has something to say; Time::max() if never.
  Time due() const;
  // Packets whose reordering window has passed. None if the silence was the reason: then probe() holds.
  News on_time(Time now);
  // Whether a packet is to be sent whatever the window says, and which bytes should be in it.
  bool probe() const { return probe_; }
  std::optional<SentPacket> oldest_under_way() const;
  void probed() { probe_ = false; }

  std::size_t in_flight() const { return in_flight_; }  // bytes
  const RoundTrip& round_trip() const { return round_trip_; }
  void first_sample(Duration measured) { round_trip_.sample(measured, {}); }
  int silences() const { return silences_; }  // timeouts in a row
  Duration timeout() const;
  std::uint64_t packets_lost() const { return packets_lost_; }
  std::uint64_t packets_sent() const { return next_ - 1; }

 private:
  SentPacket& at(std::uint64_t number) { return packets_[number & (packets_.size() - 1)]; }
  const SentPacket& at(std::uint64_t number) const { return packets_[number & (packets_.size() - 1)]; }
  void acknowledge(SentPacket&, Time now);
  void find_lost(Time now);
  void forget(Time now);
  Duration reordering_window() const;

  RoundTrip round_trip_;
  WayBack way_back_;
  std::vector<SentPacket> packets_;  // oldest_ … next_-1, each at its number modulo the size, a power of two
  std::uint64_t oldest_ = 1;
  std::uint64_t next_ = 1;
  std::uint64_t first_under_way_ = 1;  // none before it is
  std::size_t in_flight_ = 0;

  // RACK: the latest departure of any packet that has been acknowledged, and its round trip.
  std::uint64_t newest_acknowledged_ = 0;
  Time newest_departure_{};
  int reordering_steps_ = 1;
  Time loss_due_ = Time::max();

  // The timeout of silence.
  Time last_sent_at_{};
  int silences_ = 0;
  bool probe_ = false;

  std::uint64_t delivered_ = 0;
  Time delivered_at_{};
  Time first_sent_at_{};
  std::uint32_t arrived_us_ = 0;
  std::uint64_t held_by_caller_until_ = 0;  // delivered bytes; 0: not held

  std::uint64_t packets_lost_ = 0;
  std::vector<SentPacket> acknowledged_now_, lost_now_;
  std::size_t newest_in_call_ = 0;  // of acknowledged_now_
};

}  // namespace ranvier::transport
