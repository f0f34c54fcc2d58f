#include "transport/udp_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "ranvier/error.h"
#include "transport/arrival_pace.h"
#include "transport/udp_greeting.h"
#include "transport/udp_keeper.h"

namespace ranvier::transport {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;
using Duration = std::chrono::nanoseconds;

constexpr std::size_t slice = 512 << 10;
// At the end: how long a peer may be silent, how long those are waited for that are there but do not read, and how long
// those that read slowly.
constexpr auto longest_silence = 300ms;
constexpr auto longest_pause = 5s;
constexpr auto longest_farewell = 30s;
constexpr auto least_reordering = 1ms;  // threads of one host trade places for so long
constexpr int goodbyes = 3;
constexpr int most_reads = 16;  // at a time, of some packets each

// Who waits for much on a slow line rests: he lets packets come for a while and takes them together. No longer than an
// acknowledgement may wait anyway (udp_connection.cc), half of what the models take for no queue (bbr.cc,
// fair_share.cc), and a small part of what he waits for, so that little is lost where it comes sooner than thought.
constexpr auto longest_rest = 500us;
constexpr auto shortest_rest = 100us;  // what is shorter costs more than it saves
constexpr int rests = 8;               // at least, until all is there
constexpr std::size_t least_awaited = ArrivalPace::sample_bytes / 4;
constexpr std::size_t most_awaited = ArrivalPace::sample_bytes;
constexpr std::uint64_t pauses = 8;  // see ArrivalPace

constexpr auto flows_counted = 100ms;

struct Peer {
  SocketAddress address;                      // where it is
  std::unique_ptr<UdpConnection> connection;  // once that is proven
  std::unique_ptr<UdpSeal> seal;              // of all that goes there and comes from there; none: it is plain
  Time due = Time::max();
  ArrivalPace pace{ArrivalPace::ns_of_long_wait, pauses};  // of what comes on all lanes
};

class UdpTransport final : public Transport, private PartialMessages {
 public:
  UdpTransport(const WorldInfo& info, std::unique_ptr<UdpSocket> socket, const std::vector<UdpAddress>& addresses,
               const std::vector<std::optional<UdpSecrets>>& secrets, std::chrono::milliseconds unanswered_limit)
      : info_(info),
        unanswered_limit_(unanswered_limit),
        key_(addresses[own()].key),
        socket_(std::move(socket)),
        greeting_(info, *socket_, addresses,
                  [this](std::size_t rank, const SocketAddress& to, const PacketHeader& header, ConstBytes payload,
                         std::size_t bytes) { greet(peers_[rank], to, header, payload, bytes); }),
        peers_(addresses.size()),
        keeper_(*socket_, mutex_, [this](Time now) {
          advance(now);
          return next_due_;
        }) {
    for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
      if (rank == own() || !secrets[rank]) continue;
      peers_[rank].seal = std::make_unique<UdpSeal>(*secrets[rank]);
      if (!seal_buffers_) seal_buffers_.emplace();
    }
  }

  ~UdpTransport() override {
    keeper_.stop();
    try {
      take_leave();
    } catch (const std::exception&) {  // no memory for a lane: what is left to receive is received by nobody
    }
  }

  void meet(Time deadline) {
    const auto start = Clock::now();
    for (Time now = start;; now = Clock::now()) {
      advance(now);
      if (greeting_.is_complete()) break;
      if (now >= deadline) greeting_.throw_unreached(now - start);
      info_.check_peers();
      socket_->wait(interrupt_,
                    std::min<Duration>({greeting_.say_hello(now) - now, deadline - now, WorldInfo::check_interval}));
    }
    ranks_per_core_ = greeting_.ranks_per_core();
    if (peers_.size() > 1) keeper_.start();
  }

  Rank rank() const override { return info_.rank; }
  Rank world() const override { return info_.world; }

  // See tcp: whoever spins without yielding keeps the kernel from bringing the packets it waits for.
  TransportTraits traits() const override {
    return {.name = "udp",
            .slice_bytes = std::min(slice, buffered_bytes_ / 2),
            .buffered_bytes = buffered_bytes_,
            .ranks_per_core = ranks_per_core_,
            .polls_before_yield = ranks_per_core_ > 1 ? 0 : 10,
            .polls_before_wait = 150};
  }

  std::size_t try_send(Rank to, Lane lane, ConstBytes head, ConstBytes body) override {
    Driving driving(*this);
    Peer& peer = this->peer(to, lane);
    std::size_t accepted = peer.connection->try_send(lane, head, body);
    if (accepted == 0 && advance(driving.now)) accepted = peer.connection->try_send(lane, head, body);
    if (accepted > 0) transmit(peer, driving.now);
    return accepted;
  }

  bool sent(Rank, Lane) override { return true; }  // try_send copies

  ConstBytes try_recv(Rank from, Lane lane, Bytes) override {
    Driving driving(*this);
    Peer& peer = this->peer(from, lane);
    const ConstBytes view = peer.connection->view(lane);
    std::size_t& seen = seen_[static_cast<std::size_t>(from) * lane_count + lane];
    if (view.size() <= seen) advance(driving.now);
    const ConstBytes longer = peer.connection->view(lane);
    seen = longer.size();
    return longer;
  }

  void release(Rank from, Lane lane, std::size_t bytes) override {
    if (bytes == 0) return;
    const Driving driving(*this);
    Peer& peer = this->peer(from, lane);
    peer.connection->release(lane, bytes);
    seen_[static_cast<std::size_t>(from) * lane_count + lane] = 0;
    if (peer.connection->due(driving.now) <= driving.now) transmit(peer, driving.now);
  }

  PartialMessages* partial_messages() override {
    const std::lock_guard lock(mutex_);
    const bool fit = std::ranges::all_of(peers_, [](const Peer& peer) {
      const std::size_t around = sizeof(PacketHeader) + (peer.seal ? UdpSeal::bytes : 0);
      return !peer.connection || peer.connection->packet_bytes() >= around + piece_bytes;
    });
    if (!fit) return nullptr;
    for (Peer& peer : peers_)
      if (peer.connection) peer.connection->take_partial_messages();
    return this;
  }

  std::optional<PacketCounts> packet_counts() const override {
    const std::lock_guard lock(mutex_);
    PacketCounts all{.refused = refused_};
    for (const Peer& peer : peers_) {
      if (!peer.connection) continue;
      const UdpCounts counts = peer.connection->counts();
      all.sent += counts.packets_sent;
      all.lost += counts.packets_lost;
    }
    return all;
  }

  std::optional<Time> last_sign(Rank from) override {
    const std::lock_guard lock(mutex_);
    Peer& peer = peers_[static_cast<std::size_t>(from)];
    if (!peer.connection || cancelled_ || keeper_.problem()) return std::nullopt;
    peer.connection->ask_for_sign();
    note_due(peer, Clock::now());  // who moves packets sends it
    return peer.connection->heard_at();
  }

  void wait(Duration limit) override {
    const Time until = Clock::now() + std::min<Duration>(limit, 1h);
    for (;;) {
      Time next;
      Duration rest{};
      {
        Driving driving(*this);
        if (cancelled_ || interrupted_.exchange(false)) return awaited_.clear();
        advance(driving.now);
        if (!all_take_long()) awaited_.clear();
        if ((awaited_.empty() && std::exchange(news_, false)) || driving.now >= until) return awaited_.clear();
        next = std::min(until, next_due_);
        if (!awaited_.empty()) rest = this->rest();
        keeper_.others_sleep(true);
      }
      const bool signalled = rest >= shortest_rest
                                 ? UdpSocket::rest(interrupt_, std::min<Duration>(next - Clock::now(), rest))
                                 : socket_->wait(interrupt_, next - Clock::now());
      keeper_.others_sleep(false);
      if (signalled) clear_event(interrupt_);
    }
  }

  bool expect(std::span<const Expected> all) override {
    const std::lock_guard lock(mutex_);
    awaited_.clear();
    if (cancelled_ || keeper_.problem()) return false;  // whoever asks finds that out
    for (const Expected& each : all) {
      const Peer& peer = this->peer(each.from, each.lane);
      const std::size_t missing = peer.connection->missing(each.lane, each.bytes);
      if (missing < least_awaited || !peer.pace.takes_long(missing)) {
        awaited_.clear();
        return false;
      }
      awaited_.push_back({each, missing - std::min(peer.pace.before_waking(missing), most_awaited)});
    }
    return !awaited_.empty();
  }

  void interrupt() override {
    interrupted_ = true;
    signal_event(interrupt_);
  }

  void cancel() override {
    close();
    given_up_ = true;
  }

  void close() override {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    for (Peer& peer : peers_)
      if (peer.connection) peer.connection->partial_sends().withdraw_lent();
  }

 private:
  // Held by whoever moves packets; tells the keeper that somebody does.
  struct Driving {
    explicit Driving(UdpTransport& transport) : lock(transport.mutex_), now(Clock::now()) {
      transport.keeper_.driven(now);
    }
    std::lock_guard<std::mutex> lock;
    Time now;
  };

  // ---- Rests; mutex_ is held.

  struct Awaited {
    Expected expected;
    std::size_t few = 0;  // so many may still be missing when it is time to wake up
  };

  const Peer& peer(const Awaited& each) const { return peers_[static_cast<std::size_t>(each.expected.from)]; }
  std::size_t missing(const Awaited& each) const {
    return peer(each).connection->missing(each.expected.lane, each.expected.bytes);
  }

  bool all_take_long() const {
    return std::ranges::all_of(awaited_, [this](const Awaited& each) { return missing(each) > each.few; });
  }

  // For how long nobody need look at what arrives.
  Duration rest() const {
    Duration rest = longest_rest;
    for (const Peer& peer : peers_)
      if (peer.connection) rest = std::min(rest, peer.connection->may_rest());
    for (const Awaited& each : awaited_)
      rest = std::min(rest, Duration(peer(each).pace.time_for(missing(each))) / rests);
    return rest;
  }

  // ---- PartialMessages.

  void send_once(Rank to, std::uint64_t ticket, ConstBytes message, Pieces pieces) override {
    const Driving driving(*this);
    Peer& peer = this->peer(to);
    peer.connection->partial_sends().add(ticket, message, pieces);
    transmit(peer, driving.now);
  }

  void withdraw(Rank to, std::uint64_t ticket) override {
    const Driving driving(*this);
    this->peer(to).connection->partial_sends().withdraw(ticket);
  }

  void send_whole(Rank to, std::uint64_t ticket, ConstBytes message, std::shared_ptr<const void> memory,
                  std::span<const Pieces> pieces) override {
    const Driving driving(*this);
    Peer& peer = this->peer(to);
    for (const Pieces& each : pieces) peer.connection->partial_sends().add_whole(ticket, message, memory, each);
    transmit(peer, driving.now);
  }

  ConstBytes look_at(Rank from, std::uint64_t ticket, std::size_t bytes, std::vector<std::uint8_t>& arrived) override {
    const Driving driving(*this);
    const Message& message = this->peer(from).connection->partial_receives().message(ticket, bytes);
    arrived = message.arrived;
    return message.bytes;
  }

  // What is due then, whoever moves packets next sends: one who is woken for what is started, or the keeper.
  void expect(Rank from, std::uint64_t ticket, std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    if (cancelled_ || keeper_.problem()) return;
    const Time now = Clock::now();
    Peer& peer = this->peer(from);
    peer.connection->expect(now, ticket, bytes);
    note_due(peer, now);
  }

  Arrival arrival(Rank from, std::uint64_t ticket, std::size_t bytes) override {
    Driving driving(*this);
    advance(driving.now);
    Peer& peer = this->peer(from);
    UdpConnection& connection = *peer.connection;
    Arrival arrival = connection.arrival(driving.now, ticket, bytes);
    if (connection.due(driving.now) <= driving.now) transmit(peer, driving.now);
    arrival.reordering = std::max<Duration>(connection.round_trip().least() / 4, least_reordering);
    return arrival;
  }

  Message take(Rank from, std::uint64_t ticket, std::size_t bytes) override {
    const Driving driving(*this);
    return this->peer(from).connection->partial_receives().take(ticket, bytes);
  }

  void give_back(Rank from, Message message) override {
    const Driving driving(*this);
    this->peer(from).connection->partial_receives().give_back(std::move(message));
  }

  std::size_t own() const { return static_cast<std::size_t>(info_.rank); }

  Peer& peer(Rank rank, Lane lane = 0) {
    if (cancelled_) [[unlikely]]
      throw Error(ErrorKind::aborted,
                  fmt::format("rank {} used udp after it was cancelled; make a new communicator", info_.rank));
    if (keeper_.problem()) [[unlikely]]
      throw Error(*keeper_.problem());
    const auto index = static_cast<std::size_t>(rank);
    if (lane >= lane_count || index >= peers_.size() || !peers_[index].connection) [[unlikely]]
      throw Error(ErrorKind::usage,
                  fmt::format("rank {} of {} has no udp lane {} to rank {}", info_.rank, info_.world, lane, rank));
    return peers_[index];
  }

  // ---- Moving packets; mutex_ is held, or there is no other thread.

  // Takes in what has arrived and sends what is due. Whether anything has arrived. `now` goes on meanwhile.
  bool advance(Time& now) {
    // Time goes on between these reads: a packet that left after one of them may be acknowledged in the next one, and
    // that took no time at all if both had the same. Nor may it be from before a read, or a round trip would be shorter
    // than the path is.
    const auto arrived = [&](const UdpSocket::Arrival& arrival) { take(now = arrival.read, arrival); };
    bool any = false;
    // Until nothing is left, but not for ever: others may send faster than this rank looks. Acknowledgements leave in
    // between, so that those who wait for them go on meanwhile.
    for (int reads = 0; reads < most_reads; ++reads) {
      const std::size_t received = socket_->receive(arrived);
      if (received == 0) break;
      any = true;
      for (const std::size_t rank : touched_) transmit(peers_[rank], now);
      touched_.clear();
      if (received < UdpSocket::most_received) break;
    }
    count_flows(now);
    if (next_due_ > now) return any;
    next_due_ = Time::max();
    for (Peer& peer : peers_) {
      if (!peer.connection) continue;
      if (peer.due <= now) {
        peer.connection->on_time(now);
        if (peer.connection->is_too_narrow(now)) throw_narrow(peer);
        if (peer.connection->unanswered(now) >= unanswered_limit_) throw_unanswered(peer);
        transmit(peer, now);
      }
      next_due_ = std::min(next_due_, peer.due);
    }
    return any;
  }

  // With how many ranks this one has exchanged bytes lately: they share a line with one another.
  void count_flows(Time now) {
    if (now - flows_counted_at_ < flows_counted) return;
    std::uint32_t out = 0, in = 0;
    for (const Peer& peer : peers_) {
      if (!peer.connection) continue;
      out += peer.connection->sent_since(flows_counted_at_) ? 1 : 0;
      in += peer.connection->received_since(flows_counted_at_) ? 1 : 0;
    }
    for (const Peer& peer : peers_)
      if (peer.connection) peer.connection->set_flows(out, in);
    flows_counted_at_ = now;
  }

  // The first of the outgoing packets; as UdpSocket::send.
  bool send(Peer& peer, const SocketAddress& to, std::size_t count) {
    const auto packets = std::span(outgoing_).first(count);
    if (peer.seal) peer.seal->close(packets, *seal_buffers_);
    return socket_->send(to, packets, peer.connection && peer.connection->one_by_one());
  }

  // A datagram as its sender wrote it; empty for one that was not sealed though its sender seals, and for others'.
  ConstBytes opened(ConstBytes datagram) {
    if (!seal_buffers_) return datagram;
    PacketHeader header;
    if (datagram.size() < sizeof header) return {};
    std::memcpy(&header, datagram.data(), sizeof header);
    const auto rank = static_cast<std::size_t>(header.from);
    if (header.from < 0 || rank >= peers_.size()) return {};
    return peers_[rank].seal ? peers_[rank].seal->open(datagram, key_, *seal_buffers_) : datagram;
  }

  void transmit(Peer& peer, Time now) {
    for (;;) {
      std::size_t count = 0;
      while (count < outgoing_.size() && peer.connection->next_packet(now, outgoing_[count])) ++count;
      if (count == 0) break;
      if (!send(peer, peer.address, count) &&
          !peer.connection->too_large(
              std::ranges::max(std::span(outgoing_).first(count), {}, &OutgoingPacket::bytes).bytes()))
        throw_narrow(peer);
      if (count < outgoing_.size()) break;
    }
    note_due(peer, now);
  }

  void note_due(Peer& peer, Time now) {
    peer.due = peer.connection->due(now);
    next_due_ = std::min(next_due_, peer.due);
    keeper_.due(next_due_);
  }

  // Since the ranks have met: then it would have been refused.
  [[noreturn]] void throw_narrow(const Peer& peer) const {
    const auto rank = static_cast<Rank>(&peer - peers_.data());
    throw Error(ErrorKind::config,
                fmt::format("rank {} can send no more to rank {} by udp: {}", info_.rank, rank,
                            mtu_complaint(ip_of(peer.address))),
                rank);
  }

  // Its heartbeats, which go by tcp, may still come.
  [[noreturn]] void throw_unanswered(const Peer& peer) const {
    const auto rank = static_cast<Rank>(&peer - peers_.data());
    throw Error(ErrorKind::peer_lost,
                fmt::format("rank {} has acknowledged nothing by udp that rank {} sent to {} for {} s; does a firewall "
                            "drop UDP by now? let it through, or choose another transport",
                            rank, info_.rank, ip_of(peer.address),
                            std::chrono::duration_cast<std::chrono::seconds>(unanswered_limit_).count()),
                rank);
  }

  void take(Time now, const UdpSocket::Arrival& arrival) {
    if (!parse_packet(opened(arrival.bytes), key_, packet_)) {
      ++refused_;
      return;
    }
    const PacketHeader& header = packet_.header;
    const auto rank = static_cast<std::size_t>(header.from);
    if (header.from < 0 || rank >= peers_.size() || rank == own() || header.epoch != info_.epoch) return;
    Peer& peer = peers_[rank];
    if (header.kind == PacketKind::hello || header.kind == PacketKind::challenge ||
        header.kind == PacketKind::welcome) {
      if (const auto found = greeting_.take(now, packet_, arrival.from)) connect(peer, now, *found);
      return;
    }
    if (!peer.connection) return;  // comes again
    news_ |= peer.connection->receive(now, packet_, arrival.arrived);
    if (header.kind == PacketKind::data)
      peer.pace.came(header.payload, static_cast<std::uint64_t>(Duration(arrival.arrived.time_since_epoch()).count()));
    if (std::ranges::find(touched_, rank) == touched_.end()) touched_.push_back(rank);
  }

  void greet(Peer& peer, const SocketAddress& to, PacketHeader header, ConstBytes payload, std::size_t bytes) {
    std::array<std::byte, PacketSize::base> padded{};
    const std::size_t around = sizeof header + (peer.seal ? UdpSeal::bytes : 0);
    const std::size_t size = std::max(payload.size(), bytes - std::min(bytes, around));
    std::ranges::copy(payload, padded.begin());
    header.payload = static_cast<std::uint16_t>(size);
    outgoing_[0].head_bytes = write_packet_head(header, {}, outgoing_[0].head);
    outgoing_[0].payload = std::span(padded).first(size);
    send(peer, to, 1);
  }

  // From here on the peer is at this address.
  void connect(Peer& peer, Time now, const UdpGreeting::Found& found) {
    UdpConnectionOptions options = found.connection;
    options.seal_bytes = peer.seal ? UdpSeal::bytes : 0;
    buffered_bytes_ = std::min(buffered_bytes_, options.ring_bytes);
    peer.address = found.address;
    peer.connection = std::make_unique<UdpConnection>(options);
    peer.connection->met(now, found.round_trip);
  }

  // ---- The end.

  // What was accepted still arrives: until each peer has acknowledged all, has left, or is silent. After a failure
  // peers may read no more, and whoever meets the others anew is not to wait for that.
  void take_leave() {
    clear_event(interrupt_);
    const Time begin = Clock::now();
    const Duration pause = given_up_ ? Duration(longest_silence) : Duration(longest_pause);
    std::size_t left = 0;
    for (Time now = begin, moved = begin; now - moved < pause && now - begin < longest_farewell; now = Clock::now()) {
      move_or_give_up([&] { advance(now); });
      const std::size_t before = std::exchange(left, 0);
      for (Peer& peer : peers_) {
        if (!peer.connection) continue;
        // What nobody reads any more is thrown away: a peer that leaves too may wait for the room.
        for (Lane lane = 0; lane < lane_count; ++lane)
          peer.connection->release(lane, peer.connection->view(lane).size());
        move_or_give_up([&] { transmit(peer, now); });
        if (!peer.connection) continue;
        // Long enough for what was lost to be sent again and answered.
        const Duration patience = std::max<Duration>(longest_silence, 10 * peer.connection->round_trip().smoothed());
        const bool is_there =
            !peer.connection->gone() && now - std::max(peer.connection->heard_at(), begin) <= patience;
        if (is_there) left += peer.connection->unacknowledged();
      }
      if (left == 0) break;
      if (left != before) moved = now;
      socket_->wait(interrupt_, std::min<Duration>(std::max(next_due_, now) - now, 10ms));
    }
    for (int repetition = 0; repetition < goodbyes; ++repetition)
      for (Peer& peer : peers_) say_goodbye(peer);
  }

  // To whom nothing gets through any more nothing is sent: the others are to lose nothing by that.
  template <class Move>
  void move_or_give_up(const Move& move) {
    try {
      move();
    } catch (const Error& error) {
      if (error.culprit() < 0) throw;
      const auto rank = static_cast<std::size_t>(error.culprit());
      say_goodbye(peers_[rank]);
      peers_[rank].connection.reset();
      std::erase(touched_, rank);
    }
  }

  void say_goodbye(Peer& peer) {
    if (!peer.connection || peer.connection->gone()) return;
    peer.connection->goodbye(Clock::now(), outgoing_[0]);
    send(peer, peer.address, 1);
  }

  const WorldInfo info_;
  const std::chrono::milliseconds unanswered_limit_;
  const std::uint64_t key_;
  const std::unique_ptr<UdpSocket> socket_;
  std::size_t buffered_bytes_ = UdpGreeting::largest_ring;  // of the smallest ring
  int ranks_per_core_ = 1;                                  // on this host, rounded up

  mutable std::mutex mutex_;  // of all until the next gap
  UdpGreeting greeting_;
  std::vector<Peer> peers_;
  std::vector<std::size_t> seen_ = std::vector<std::size_t>(peers_.size() * lane_count);  // of each lane's last view
  std::vector<std::size_t> touched_;  // ranks from which something has arrived
  Time next_due_ = Time::max();
  Time flows_counted_at_{};
  bool news_ = false;          // since the last wait()
  std::uint64_t refused_ = 0;  // datagrams
  bool cancelled_ = false;
  bool given_up_ = false;         // by a failure; only for the destructor
  std::vector<Awaited> awaited_;  // in the next wait(), or in the one that is under way
  Packet packet_;
  std::array<OutgoingPacket, UdpSocket::most_at_once> outgoing_;
  std::optional<UdpSeal::Buffers> seal_buffers_;  // if there is anybody with a seal

  std::atomic<bool> interrupted_ = false;
  Fd interrupt_ = event_descriptor();
  UdpKeeper keeper_;
};

}  // namespace

std::unique_ptr<Transport> udp_transport(const WorldInfo& info, std::unique_ptr<UdpSocket> socket,
                                         const std::vector<UdpAddress>& addresses,
                                         const std::vector<std::optional<UdpSecrets>>& secrets,
                                         std::chrono::milliseconds unanswered_limit, Time deadline) {
  auto transport = std::make_unique<UdpTransport>(info, std::move(socket), addresses, secrets, unanswered_limit);
  transport->meet(deadline);
  return transport;
}

}  // namespace ranvier::transport
