#include "transport/udp_connection.h"

#include <limits>
#include <utility>

namespace ranvier::transport {
namespace {

using namespace std::chrono_literals;

// How long an acknowledgement waits for bytes to travel with; less than LossRecovery::most_delay.
constexpr auto acknowledgement_delay = 500us;
constexpr int packets_per_acknowledgement = 2;  // RFC 9000, 13.2.2
constexpr std::size_t most_remembered_ranges = 4 * most_ack_ranges;
constexpr std::size_t ranges_beside_bytes = 4;  // more travel in a packet of their own
constexpr std::size_t most_beside_a_piece =
    sizeof(PacketHeader) + Acknowledgement::fixed_bytes + ranges_beside_bytes * sizeof(NumberRange);
constexpr auto most_lag = 2ms;  // a timer that comes late may make up for so much
constexpr int silences_to_doubt_size = 3;
constexpr Lane partial_lane = lane_count;  // in records of packets: of a message that has to be whole

constexpr std::array<std::byte, 64 << 10> padding{};

}  // namespace

UdpConnection::UdpConnection(const UdpConnectionOptions& options)
    : options_(options),
      partial_sends_({.bytes = lane_count * options.peer_ring_bytes}),
      partial_receives_({.bytes = lane_count * options.ring_bytes}),
      rate_(options.most_packet_bytes),
      size_(options.most_packet_bytes, local()) {
  for (Lane lane = 0; lane < lane_count; ++lane) {
    send_lanes_.emplace_back(options.ring_bytes, options.peer_ring_bytes);
    receive_lanes_.emplace_back(options.ring_bytes);
  }
  rate_.set_packet_bytes(size_.bytes());
  numbers_.reserve(most_remembered_ranges + 1);
  news_since_.fill(std::numeric_limits<std::uint64_t>::max());
}

void UdpConnection::release(Lane lane, std::size_t bytes) {
  UdpReceiveLane& receiving = receive_lanes_[lane];
  receiving.release(bytes);
  // A sender that has no credit left hears of it now; everybody else with the next acknowledgement.
  if (receiving.limit_is_news()) acknowledge_now_ = true;
}

void UdpConnection::expect(Time now, std::uint64_t ticket, std::size_t bytes) {
  const std::uint64_t before = partial_receives_.asked_below();
  const bool may_wait = partial_receives_.may_hold_up();
  partial_receives_.expect(ticket, bytes, now);
  const std::uint64_t below = partial_receives_.asked_below();
  // A sender that may have no credit left hears of it now. Of messages behind one that had not been asked for it could
  // not know that they had been, so they have used some up, too.
  if (below > before + 1 || (may_wait && below > before)) acknowledge_now_ = true;
}

PartialMessages::Arrival UdpConnection::arrival(Time now, std::uint64_t ticket, std::size_t bytes) {
  expect(now, ticket, bytes);
  return partial_receives_.arrival(ticket, bytes);
}

void UdpConnection::met(Time now, std::optional<Duration> round_trip) {
  heard_at_ = limits_heard_at_ = now;
  if (round_trip) recovery_.first_sample(*round_trip);
}

// ---- What to send.

std::size_t UdpConnection::window() const { return local() ? options_.local_window : rate_.window(); }

// Packets leave in groups, since one system call carries many: a group begins when the clock of departures has come up
// with the time, and ends when it is so much ahead.
bool UdpConnection::may_depart(Time now) {
  if (local()) return true;
  if (departure_ <= now) {
    const std::chrono::duration<double> group(static_cast<double>(rate_.group_bytes()) / rate_.pacing_rate());
    group_end_ = now + std::chrono::duration_cast<Duration>(group);
  }
  return departure_ < group_end_;
}

PacketHeader UdpConnection::header(PacketKind kind) const {
  PacketHeader header;
  header.key = options_.peer_key;
  header.from = options_.self;
  header.epoch = options_.epoch;
  header.kind = kind;
  return header;
}

bool UdpConnection::has_bytes_to_send() const {
  return partial_sends_.has_next() ||
         std::ranges::any_of(send_lanes_, [](const UdpSendLane& lane) { return lane.has_next(); });
}

bool UdpConnection::waits_for_credit() const {
  return partial_sends_.waits_for_credit() ||
         std::ranges::any_of(send_lanes_, [](const UdpSendLane& lane) { return lane.waits_for_credit(); });
}

UdpConnection::Time UdpConnection::asks_for_credit_at() const {
  if (recovery_.in_flight() > 0 || !waits_for_credit()) return Time::max();
  return std::max(last_probe_at_, limits_heard_at_) + recovery_.timeout();
}

// The most urgent collectives first; the ordinary ones and messages by turns.
UdpSendLane* UdpConnection::lane_to_send() {
  for (Lane lane = collective_lanes - 1; lane >= ordinary_lanes; --lane)
    if (send_lanes_[lane].has_next()) return &send_lanes_[lane];
  for (Lane tried = 0; tried < lane_count; ++tried) {
    UdpSendLane& lane = send_lanes_[turn_];
    if (lane.has_next()) return &lane;
    turn_ = static_cast<Lane>((turn_ + 1) % lane_count);
  }
  return nullptr;
}

bool UdpConnection::acknowledgement_due(Time now) const {
  return acknowledge_now_ || (unacknowledged_ > 0 && now - unacknowledged_since_ >= acknowledgement_delay);
}

// On a path that loses packets dozens of ranges are remembered, most of which have been told again and again: they
// would be a twelfth of what travels. So what arrives is told in the next acknowledgements, and all that is remembered
// in each eighth one, since all of those may be lost.
std::size_t UdpConnection::ranges_to_tell() const {
  const auto ranges = numbers_.all();
  if (acknowledgements_ % news_since_.size() == 0) return ranges.size();
  const std::uint64_t since = *std::ranges::min_element(news_since_);
  const auto old = std::ranges::find_if(ranges, [&](const NumberRange& range) { return range.end > since; });
  return std::max<std::size_t>(static_cast<std::size_t>(ranges.end() - old), 1);
}

void UdpConnection::add_acknowledgement(Time now, PacketHeader& header, Acknowledgement& acknowledgement,
                                        std::size_t most_ranges) {
  const auto ranges = numbers_.all();
  if (ranges.empty()) return;
  acknowledgement.count = std::min({ranges.size(), ranges_to_tell(), most_ranges});
  news_since_[++acknowledgements_ % news_since_.size()] = std::numeric_limits<std::uint64_t>::max();
  header.ranges = static_cast<std::uint8_t>(acknowledgement.count);
  for (std::size_t i = 0; i < acknowledgement.count; ++i) acknowledgement.ranges[i] = ranges[ranges.size() - 1 - i];
  const auto held = std::chrono::duration_cast<std::chrono::microseconds>(now - newest_at_).count();
  acknowledgement.delay_us = static_cast<std::uint32_t>(std::clamp<std::int64_t>(held, 0, 1'000'000));
  acknowledgement.arrived_us = WayBack::microseconds(newest_at_);
  acknowledgement.line_rate = train_.take();
  acknowledgement.senders = flows_in_;
  acknowledgement.asked_below = static_cast<std::uint32_t>(partial_receives_.asked_below());
  for (Lane lane = 0; lane < lane_count; ++lane) {
    acknowledgement.limits[lane] = receive_lanes_[lane].limit();
    receive_lanes_[lane].told(receive_lanes_[lane].limit());
  }
  unacknowledged_ = 0;
  unacknowledged_since_ = Time::max();
  acknowledge_now_ = false;
}

void UdpConnection::finish(Time now, const PacketHeader& header, const Acknowledgement& acknowledgement,
                           ConstBytes payload, bool sizes, OutgoingPacket& packet) {
  PacketHeader last = header;
  last.payload = static_cast<std::uint16_t>(payload.size());
  const bool asks = asks_for_acknowledgement(last);
  const bool idle = recovery_.in_flight() == 0;
  if (asks) {
    last.number = recovery_.next_number();
    last.follows = now == std::exchange(last_left_at_, now) ? 1 : 0;
    last.behind = recovery_.behind();
  }
  packet.head_bytes = write_packet_head(last, acknowledgement, packet.head);
  packet.payload = payload;
  if (!asks) return;
  SentPacket sent;
  sent.lane = last.lane;
  sent.offset = last.offset;
  const bool is_whole = last.kind == PacketKind::partial && partial_sends_.has_whole(last.offset);
  if (is_whole) sent.lane = partial_lane;
  sent.payload = last.kind == PacketKind::data || is_whole ? last.payload : 0;
  sent.bytes = static_cast<std::uint32_t>(packet.bytes() + options_.seal_bytes);
  sent.sizes = sizes;
  recovery_.sent(sent, now);
  if (local()) return;
  const std::chrono::duration<double> takes(static_cast<double>(sent.bytes) / rate_.pacing_rate());
  departure_ = std::max(departure_, idle ? now : now - most_lag) + std::chrono::duration_cast<Duration>(takes);
}

bool UdpConnection::next_packet(Time now, OutgoingPacket& packet) {
  if (gone_) return false;
  Acknowledgement& acknowledgement = acknowledgement_;
  const bool due = acknowledgement_due(now);
  const auto alone = [&] {
    PacketHeader header = this->header(PacketKind::data);
    add_acknowledgement(now, header, acknowledgement, most_ack_ranges);
    acknowledge_now_ = false;
    finish(now, header, acknowledgement, {}, false, packet);
    return header.ranges > 0;
  };
  if (due && std::min(numbers_.count(), ranges_to_tell()) > ranges_beside_bytes && alone()) return true;

  const bool open = recovery_.in_flight() < window();
  if (recovery_.probe()) {
    if (const auto oldest = recovery_.oldest_under_way(); oldest && oldest->payload > 0) lost(*oldest);
  } else if (!open || !may_depart(now)) {
    return due && alone();
  }

  if (const std::size_t size = size_.to_try();
      size > 0 && open && recovery_.round_trip().sampled() && has_bytes_to_send()) {
    size_.trying();
    const PacketHeader header = this->header(PacketKind::probe);
    const std::size_t pad = size - sizeof header - options_.seal_bytes;
    finish(now, header, acknowledgement, ConstBytes(padding).first(pad), true, packet);
    return true;
  }
  if (std::exchange(ask_small_, false)) {
    finish(now, header(PacketKind::probe), acknowledgement, {}, false, packet);
    return true;
  }
  if (UdpSendLane* const lane = lane_to_send()) {
    PacketHeader header = this->header(PacketKind::data);
    if (due || unacknowledged_ > 0) add_acknowledgement(now, header, acknowledgement, ranges_beside_bytes);
    const std::size_t head = sizeof header + (header.ranges > 0 ? acknowledgement.bytes() : 0);
    const UdpSendLane::Piece piece = lane->next(size_.bytes() - head - options_.seal_bytes);
    header.lane = (lane - send_lanes_.data()) & 0x7f;
    header.offset = piece.offset;
    finish(now, header, acknowledgement, piece.bytes, false, packet);
    lane->sent(piece);
    if (!lane->has_next()) turn_ = static_cast<Lane>((header.lane + 1) % lane_count);
    recovery_.probed();
    return true;
  }
  if (partial_sends_.has_next()) {
    const bool both_fit = size_.bytes() >= most_beside_a_piece + options_.seal_bytes + PartialMessages::piece_bytes;
    if (due && !both_fit && alone()) return true;
    send_partial(now, due, packet);
    recovery_.probed();
    return true;
  }
  if (open) recovery_.held_by_caller();
  if (recovery_.probe() || now >= asks_for_credit_at()) {
    recovery_.probed();
    last_probe_at_ = now;
    finish(now, header(PacketKind::probe), acknowledgement, {}, false, packet);
    return true;
  }
  return due && alone();
}

// What is sent once stays lost: the recovery's records of it name no bytes.
void UdpConnection::send_partial(Time now, bool acknowledge, OutgoingPacket& packet) {
  PacketHeader header = this->header(PacketKind::partial);
  Acknowledgement& acknowledgement = acknowledgement_;
  if (acknowledge) add_acknowledgement(now, header, acknowledgement, ranges_beside_bytes);
  const std::size_t head = sizeof header + (header.ranges > 0 ? acknowledgement.bytes() : 0);
  const UdpPartialSends::Piece piece = partial_sends_.next(size_.bytes() - head - options_.seal_bytes);
  header.offset = piece.place;
  finish(now, header, acknowledgement, piece.bytes, false, packet);
  partial_sends_.sent(piece);
}

void UdpConnection::goodbye(Time now, OutgoingPacket& packet) {
  PacketHeader header = this->header(PacketKind::goodbye);
  Acknowledgement acknowledgement;
  add_acknowledgement(now, header, acknowledgement, most_ack_ranges);
  finish(now, header, acknowledgement, {}, false, packet);
}

// ---- What has arrived.

bool UdpConnection::receive(Time now, const Packet& packet, Time arrived_at) {
  const PacketHeader& header = packet.header;
  heard_at_ = now;
  bool news = false;
  if (header.ranges > 0) {
    const Acknowledgement& told = packet.acknowledgement;
    const auto outcome = recovery_.acknowledge(std::span(told.ranges).first(told.count),
                                               std::chrono::microseconds(told.delay_us), told.arrived_us, now);
    if (!outcome) return false;  // of packets that were never sent: it lies
    limits_heard_at_ = now;
    learn(*outcome, 1e3 * told.line_rate, told.senders);
    partial_sends_.asked_below(told.asked_below);
    for (Lane lane = 0; lane < lane_count; ++lane)
      if (send_lanes_[lane].set_limit(told.limits[lane])) news |= send_lanes_[lane].has_room_again();
  }
  if (header.kind == PacketKind::goodbye) return gone_ = true;
  if (!asks_for_acknowledgement(header)) return news;
  if (header.kind == PacketKind::data) {
    UdpReceiveLane& lane = receive_lanes_[header.lane];
    const std::size_t before = lane.ready();
    if (!lane.arrived(header.offset, packet.payload)) return news;  // never acknowledged, so it comes again
    news |= lane.ready() > before;
  }
  if (header.kind == PacketKind::partial) {
    using Piece = UdpPartialReceives::Piece;
    const Piece piece = takes_partial_ ? partial_receives_.arrived(now, header.offset, packet.payload) : Piece::refused;
    if (piece == Piece::refused) return news;
    news |= piece == Piece::news;
  }
  const std::size_t told_bytes = header.ranges > 0 ? packet.acknowledgement.bytes() : 0;
  train_.arrived(header.number, header.follows != 0, sizeof header + told_bytes + header.payload + options_.seal_bytes,
                 arrived_at);
  if (!note_arrival(now, header, arrived_at)) ++repeated_;
  return news;
}

bool UdpConnection::note_arrival(Time now, const PacketHeader& header, Time arrived_at) {
  const std::uint64_t first_of_interest = header.number - header.behind;
  if (first_of_interest > forgotten_) {
    forgotten_ = first_of_interest;
    numbers_.remove_below(forgotten_);
  }
  const bool is_new = header.number >= forgotten_ && numbers_.add({header.number, header.number + 1});
  if (numbers_.count() > most_remembered_ranges) {
    forgotten_ = numbers_.first().end;
    numbers_.remove_below(forgotten_);
  }
  // Whoever sent it a second time, or out of turn, should know soon what is here.
  if (!is_new || header.number != newest_ + 1 || header.kind == PacketKind::probe) acknowledge_now_ = true;
  if (header.number > newest_) {
    newest_ = header.number;
    newest_at_ = arrived_at;
  }
  std::uint64_t& lowest = news_since_[acknowledgements_ % news_since_.size()];
  lowest = std::min(lowest, header.number);
  if (unacknowledged_ == 0) unacknowledged_since_ = now;
  unacknowledged_ += sizeof header + header.payload;
  if (unacknowledged_ >= packets_per_acknowledgement * size_.bytes()) acknowledge_now_ = true;
  return is_new;
}

void UdpConnection::lost(const SentPacket& packet) {
  if (packet.lane == partial_lane)
    partial_sends_.lost(packet.offset, packet.payload);
  else
    send_lanes_[packet.lane].lost({packet.offset, packet.offset + packet.payload});
}

void UdpConnection::learn(const LossRecovery::News& news, double line, std::uint32_t senders) {
  // Of a lane most are next to one another.
  Lane lane = 0;
  NumberRange bytes;
  for (const SentPacket& packet : news.acknowledged) {
    size_.got_through(packet.bytes);
    if (packet.lane == partial_lane) {
      partial_sends_.acknowledged(packet.offset, packet.payload);
    } else if (packet.payload > 0) {
      if (packet.lane != lane || packet.offset != bytes.end) {
        send_lanes_[lane].acknowledged(bytes);
        lane = packet.lane;
        bytes.begin = packet.offset;
      }
      bytes.end = packet.offset + packet.payload;
    } else if (packet.sizes) {
      size_.acknowledged(packet.bytes);
    }
  }
  send_lanes_[lane].acknowledged(bytes);
  for (const SentPacket& packet : news.lost) {
    if (packet.sizes)
      size_.lost();
    else
      size_.vanished(packet.bytes, news.sample.now);
    if (packet.payload > 0) lost(packet);
  }
  rate_.set_packet_bytes(size_.bytes());
  Bbr::Sample sample = news.sample;
  sample.line = line;
  sample.flows = std::max({senders, flows_out_, 1U});
  if (sample.acknowledged > 0 || sample.lost > 0) rate_.acknowledged(sample);
}

// ---- Time.

UdpConnection::Time UdpConnection::due(Time now) const {
  if (gone_) return Time::max();
  Time due = recovery_.due();
  if (recovery_.probe() || acknowledge_now_) return now;
  if (unacknowledged_ > 0) due = std::min(due, unacknowledged_since_ + acknowledgement_delay);
  if (recovery_.in_flight() < window() && (has_bytes_to_send() || ask_small_))
    due = std::min(due, local() || departure_ < group_end_ ? now : std::max(now, departure_));
  return std::min(due, asks_for_credit_at());
}

UdpConnection::Duration UdpConnection::may_rest() const {
  const std::size_t in_flight = recovery_.in_flight();
  if (in_flight < window() || !has_bytes_to_send()) return Duration::max();
  return local() ? Duration(0) : rate_.queued(in_flight) / 2;
}

void UdpConnection::on_time(Time now) {
  if (recovery_.due() > now) return;
  const int before = recovery_.silences();
  learn(recovery_.on_time(now));
  if (before == 0) unanswered_since_ = now;
  if (recovery_.silences() > before && recovery_.silences() >= silences_to_doubt_size && !local()) {
    size_.large_ones_vanish();
    ask_small_ = true;
  }
}

std::size_t UdpConnection::unacknowledged() const {
  std::size_t bytes = partial_sends_.unacknowledged();
  for (const UdpSendLane& lane : send_lanes_) bytes += lane.unacknowledged();
  return bytes;
}

}  // namespace ranvier::transport
