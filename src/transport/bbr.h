// How fast to send: a model of the path instead of a fear of loss.
//
// N. Cardwell, Y. Cheng, C. S. Gunn, S. H. Yeganeh, V. Jacobson, "BBR: Congestion-Based Congestion Control", ACM Queue
// 14(5), 2016. The greatest rate at which packets lately arrived, and the least round trip, are the two numbers that a
// path has; it is full and its queue empty when `rate x round trip` bytes are under way. So packets leave at that rate,
// twice the product is the most that is under way, and by turns one round trip goes a quarter faster, to see whether
// there is more, and one slower, to drain what that queued.
//
// A packet lost at random says nothing of either number, hence 1 % of loss costs 1 % here, where CUBIC (RFC 9438)
// falls to what a window of about 1 / loss^0.75 allows. Loss that is heavier than `most_loss` in a round trip means a
// full queue after all: then what is under way is cut to `beta`, and raised again while rounds stay clean, after
// draft-ietf-ccwg-bbr (BBRv3). That draft's other bounds are left out; see docs/decisions.
//
// Pure: no clock, no socket.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "transport/fair_share.h"

namespace ranvier::transport {

class Bbr {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::nanoseconds;

  // What an acknowledgement told.
  struct Sample {
    Time now;
    double rate = 0;                     // bytes a second that arrived lately; 0: unknown
    double arrival_rate = 0;             // the same by the receiver's clock alone; 0: unknown
    bool held_by_caller = false;         // it was measured while there was not enough to send: the path may do more
    Duration round_trip{};               // 0: unknown
    Duration way_back{};                 // of it: what the acknowledgement waited behind others
    std::uint64_t delivered = 0;         // bytes acknowledged so far
    std::uint64_t delivered_before = 0;  // of them, when the newest of the acknowledged packets was sent
    std::size_t acknowledged = 0;        // bytes, by this acknowledgement
    std::size_t lost = 0;
    std::size_t in_flight = 0;  // bytes, after it
    double line = 0;            // bytes a second that the line carries, whoever uses it; 0: nothing new
    std::uint32_t flows = 1;    // of one job, of which this is one, that share the line
  };

  explicit Bbr(std::size_t packet_bytes) : packet_(packet_bytes) { conclude(); }

  void acknowledged(const Sample&);
  void set_packet_bytes(std::size_t bytes) {
    if (bytes == packet_) return;
    packet_ = bytes;
    conclude();
  }

  // The most bytes that may be under way.
  std::size_t window() const { return window_; }
  // Bytes a second at which packets may leave.
  double pacing_rate() const { return pacing_rate_; }
  // What may leave at once, so that few system calls carry it: a millisecond of the rate, 64 KiB at most.
  std::size_t group_bytes() const { return group_bytes_; }
  // The model.
  double bandwidth() const;
  bool shared() const { return share_.shared(); }
  // Whether what the line carries should be measured (line_rate.h).
  bool asks_for_line() const { return share_.asks_for_line(); }
  // Of so much under way, how long the line takes for what waits in its queue; 0 beside others, whose queue that is
  // too.
  Duration queued(std::size_t in_flight) const;
  Duration round_trip() const { return least_round_trip_; }

 private:
  enum class Phase : std::uint8_t { startup, drain, probe_bandwidth, probe_round_trip };

  static constexpr std::size_t rounds_kept = 10;

  // What the senders ask for at each packet.
  void conclude();
  double rate_to_send() const;
  std::size_t most_under_way() const;
  std::size_t least_group() const;
  double product() const;          // bandwidth x round trip, bytes
  double arrived_unknown() const;  // bytes that have arrived, and whose acknowledgements are under way
  void count_round(const Sample&);
  void learn(const Sample&);
  void count_surplus(const Sample&);
  void look_for_others(const Sample&);
  double greatest_surplus() const;
  void bound_by_loss(Time now);
  void change_phase(const Sample&);
  void next_gain(Time now);
  double gain() const;

  FairShare share_;
  std::size_t packet_;
  Phase phase_ = Phase::startup;
  // The greatest rate of each of the last rounds.
  std::array<double, rounds_kept> rates_{};
  std::uint64_t round_ = 0;
  std::uint64_t round_ends_at_ = 0;  // delivered bytes
  bool round_began_ = false;
  bool round_held_by_caller_ = false;
  std::size_t round_delivered_ = 0;
  std::size_t round_lost_ = 0;
  std::size_t round_most_in_flight_ = 0;

  Duration least_round_trip_{};
  Time least_seen_at_{};

  double latest_rate_ = 0;
  Duration way_back_{};

  double full_rate_ = 0;  // startup: the rate that has to be beaten by a quarter
  int rounds_without_growth_ = 0;
  bool full_ = false;

  // How much more was acknowledged than the rate would bring, at most in each of the last rounds.
  std::array<double, rounds_kept> surpluses_{};
  std::size_t counted_ = 0;
  Time counted_since_{};

  std::size_t gain_index_ = 0;
  Time gain_since_{};
  Time probe_round_trip_until_{};
  bool probing_round_trip_ = false;  // until is set
  Time ceiling_at_{};
  double ceiling_ = 0;  // of what is under way, from loss; 0: none

  double pacing_rate_ = 0;
  std::size_t group_bytes_ = 0;
  std::size_t window_ = 0;
};

}  // namespace ranvier::transport
