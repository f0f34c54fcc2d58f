// Everything between two ranks over udp but the socket: lanes, acknowledgements, recovery, the rate. A machine that is
// told what arrives and what time it is, and says what to send: so that its tests run it over a network that exists
// only as a list.
//
// What a gradient needs is not what a file needs: eight independent lanes (a lost packet holds up its own only), bytes
// that stay in their ring until they are acknowledged, and a window that follows the path's rate whatever it loses.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ranvier/transport.h"
#include "transport/bbr.h"
#include "transport/line_rate.h"
#include "transport/loss_recovery.h"
#include "transport/number_ranges.h"
#include "transport/packet_size.h"
#include "transport/udp_lane.h"
#include "transport/udp_packet.h"
#include "transport/udp_partial.h"

namespace ranvier::transport {

struct UdpConnectionOptions {
  Rank self = 0;
  std::uint64_t peer_key = 0;
  Epoch epoch = 0;
  std::size_t ring_bytes = 1 << 20;                  // of each lane and direction
  std::size_t peer_ring_bytes = 1 << 20;             // of the peer's lanes: the credit to begin with
  std::size_t most_packet_bytes = PacketSize::base;  // that the first link takes
  // Both ends on one host: what is under way lies in the receiver's socket, and there is no path to learn about.
  // So many bytes of it are then this sender's; 0: the ends are on two hosts.
  std::size_t local_window = 0;
  std::size_t seal_bytes = 0;  // by which a packet grows after it has left here
};

// A datagram to send. The payload is memory of the connection's until the next call of it.
struct OutgoingPacket {
  std::array<std::byte, most_packet_head> head;
  std::size_t head_bytes = 0;
  ConstBytes payload;
  std::size_t bytes() const { return head_bytes + payload.size(); }
};

struct UdpCounts {
  std::uint64_t packets_sent = 0;      // those that ask to be acknowledged
  std::uint64_t packets_lost = 0;      // of them
  std::uint64_t packets_repeated = 0;  // arrived a second time
};

class UdpConnection {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::nanoseconds;

  explicit UdpConnection(const UdpConnectionOptions&);

  // As Transport has them.
  std::size_t try_send(Lane lane, ConstBytes head, ConstBytes body) { return send_lanes_[lane].try_send(head, body); }
  ConstBytes view(Lane lane) const { return receive_lanes_[lane].view(); }
  void release(Lane, std::size_t bytes);
  std::size_t missing(Lane lane, std::size_t bytes) const { return receive_lanes_[lane].missing(bytes); }

  // As PartialMessages has them.
  // Until then those of the other side are refused.
  void take_partial_messages() { takes_partial_ = true; }
  UdpPartialSends& partial_sends() { return partial_sends_; }
  UdpPartialReceives& partial_receives() { return partial_receives_; }
  void expect(Time now, std::uint64_t ticket, std::size_t bytes);
  PartialMessages::Arrival arrival(Time now, std::uint64_t ticket, std::size_t bytes);

  // The next packet that may leave now; false if none may.
  bool next_packet(Time now, OutgoingPacket&);
  // The kernel would not take the last packet for its size. Whether smaller ones come next.
  bool too_large(std::size_t bytes) { return size_.refused(bytes); }
  // A parsed packet that showed this rank's key, kind data, probe or goodbye. Whether it brought bytes in order, or
  // room for a send that was refused. It may have lain there for a while.
  bool receive(Time now, const Packet&, Time arrived_at);
  // When next_packet has something to say though nothing arrived; Time::max() if never.
  Time due(Time now) const;
  void on_time(Time now);
  // How many ranks this one lately sent bytes to, and how many to it.
  void set_flows(std::uint32_t out, std::uint32_t in) { flows_out_ = out, flows_in_ = in; }
  bool sent_since(Time time) const { return last_left_at_ >= time; }
  bool received_since(Time time) const { return newest_at_ >= time; }
  // As PacketSize has it.
  bool is_too_narrow(Time now) const { return size_.is_too_narrow(now); }
  // For how long packets have gone out again and again of which none was acknowledged.
  Duration unanswered(Time now) const {
    return recovery_.silences() < silences_that_tell ? Duration(0) : now - unanswered_since_;
  }
  // For how long nobody need look at what arrives: where acknowledgements are what sending waits for, for half as long
  // as the line has something to send without them.
  Duration may_rest() const;

  // The last words, with an acknowledgement of what has arrived.
  void goodbye(Time now, OutgoingPacket&);

  // Of what was accepted and has to arrive, the bytes that are not known to have.
  std::size_t unacknowledged() const;
  bool gone() const { return gone_; }  // the peer has said goodbye
  Time heard_at() const { return heard_at_; }
  // Something comes from a peer that is there: with what is under way, or else with a probe.
  void ask_for_sign() { ask_small_ |= recovery_.in_flight() == 0; }
  // The handshake's round trip, until packets tell more.
  void met(Time now, std::optional<Duration> round_trip);

  std::size_t packet_bytes() const { return size_.bytes(); }
  const RoundTrip& round_trip() const { return recovery_.round_trip(); }
  const Bbr& rate() const { return rate_; }
  // Whether packets should come to the line one by one, so that the other end can measure what it carries.
  bool one_by_one() const { return !local() && rate_.asks_for_line(); }
  UdpCounts counts() const { return {recovery_.packets_sent(), recovery_.packets_lost(), repeated_}; }

 private:
  // A host that stood still for long has timers that are all overdue at once.
  static constexpr int silences_that_tell = 8;

  bool local() const { return options_.local_window > 0; }
  std::size_t window() const;
  bool may_depart(Time now);
  void lost(const SentPacket&);
  void learn(const LossRecovery::News&, double line = 0, std::uint32_t senders = 1);
  bool note_arrival(Time now, const PacketHeader&, Time arrived_at);
  bool acknowledgement_due(Time now) const;
  std::size_t ranges_to_tell() const;
  void add_acknowledgement(Time now, PacketHeader&, Acknowledgement&, std::size_t most_ranges);
  UdpSendLane* lane_to_send();
  void send_partial(Time now, bool acknowledge, OutgoingPacket&);
  bool has_bytes_to_send() const;
  bool waits_for_credit() const;
  Time asks_for_credit_at() const;  // when room of which it was not told is asked for; Time::max() where none is needed
  PacketHeader header(PacketKind) const;
  void finish(Time now, const PacketHeader&, const Acknowledgement&, ConstBytes payload, bool sizes, OutgoingPacket&);

  const UdpConnectionOptions options_;
  std::vector<UdpSendLane> send_lanes_;
  std::vector<UdpReceiveLane> receive_lanes_;
  UdpPartialSends partial_sends_;
  UdpPartialReceives partial_receives_;
  bool takes_partial_ = false;
  LossRecovery recovery_;
  Bbr rate_;
  PacketSize size_;
  bool ask_small_ = false;  // in silence: whether the path lets those through, and whether the peer is there
  Time departure_{};        // when the next packet would leave if they left one by one
  Time group_end_{};
  Time last_left_at_{};
  std::uint32_t flows_out_ = 1, flows_in_ = 1;
  Lane turn_ = 0;  // of the ordinary lanes

  // What has arrived, for acknowledgements.
  NumberRanges numbers_;
  std::uint64_t forgotten_ = 1;  // of no number before it is anything remembered
  std::uint64_t newest_ = 0;
  PacketTrain train_;
  Time newest_at_{};
  std::size_t unacknowledged_ = 0;  // bytes
  Time unacknowledged_since_ = Time::max();
  bool acknowledge_now_ = false;
  // Since the last acknowledgement and each of those before it, the lowest number that arrived.
  std::array<std::uint64_t, 8> news_since_;
  std::size_t acknowledgements_ = 0;
  Acknowledgement acknowledgement_;  // memory to make one in, which is too much of it to be cleared for each packet

  Time heard_at_{};
  Time limits_heard_at_{};   // what the peer sends of its own tells nothing of room here
  Time unanswered_since_{};  // the first of the recovery's silences in a row
  Time last_probe_at_{};
  std::uint64_t repeated_ = 0;
  bool gone_ = false;
};

}  // namespace ranvier::transport
