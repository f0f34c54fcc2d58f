// Two ends of a udp connection and a path between them that is a list: a bottleneck with its rate and queue, delay,
// seeded loss, reordering and duplicates, on a clock that jumps from event to event; and ends that wait for a core.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "transport/tcp_rival.h"
#include "transport/udp_connection.h"

namespace ranvier::support {

struct PathOptions {
  double bytes_per_second = 125e6;
  std::size_t burst_bytes = 0;  // that leave at once after a rest: a bucket of tokens
  std::size_t queue_bytes = 1 << 20;
  std::chrono::nanoseconds delay = std::chrono::milliseconds(5);  // one way
  double loss = 0;
  double reordered = 0;  // this share of packets takes up to twice the delay
  double duplicated = 0;
  std::size_t most_packet_bytes = 1472;  // larger ones vanish on the way
  std::size_t first_link_bytes = 1472;
  std::size_t ring_bytes = 4 << 20;
  std::chrono::nanoseconds rest{};  // that an end stands still for now and then, on average; what comes waits for it
  std::chrono::nanoseconds run = std::chrono::milliseconds(8);  // between two of these
  std::chrono::nanoseconds looks{};  // an end looks at what has come only so often, and when it has something to send
  std::size_t seal_bytes = 0;        // that packets are longer by on their way
  unsigned seed = 1;
};

class UdpPath {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit UdpPath(const PathOptions& options) : options_(options), random_(options.seed) {
    for (std::uint64_t end = 0; end < 2; ++end)
      ends_[end] = std::make_unique<transport::UdpConnection>(
          transport::UdpConnectionOptions{.self = static_cast<Rank>(end),
                                          .peer_key = key(1 - end),
                                          .epoch = 0,
                                          .ring_bytes = options.ring_bytes,
                                          .peer_ring_bytes = options.ring_bytes,
                                          .most_packet_bytes = options.first_link_bytes,
                                          .seal_bytes = options.seal_bytes});
    for (auto& end : ends_) {
      end->take_partial_messages();
      end->met(now_, std::nullopt);
    }
  }

  transport::UdpConnection& end(std::size_t index) { return *ends_[index]; }
  Time now() const { return now_; }
  double seconds() const { return std::chrono::duration<double>(now_ - Time()).count() - 1; }

  // What the ends do between packets; returns whether all is done.
  using Body = std::function<bool()>;
  bool run(const Body& body, double limit_seconds) {
    while (seconds() < limit_seconds) {
      if (body()) return true;
      Time next = Time::max();
      for (std::size_t end = 0; end < 2; ++end) {
        rest(end);
        if (is_awake(end)) pump(end);
        next = std::min(next, std::max(wakes_at_[end], ends_[end]->due(now_)));
        if (!waiting_[end].empty()) next = std::min(next, std::max(wakes_at_[end], looks_at_[end]));
      }
      pump_rivals();
      for (const auto& [from, rival] : rivals_) next = std::min(next, std::max(rivals_begin_at_, rival->due(now_)));
      if (!rival_flights_.empty()) next = std::min(next, rival_flights_.begin()->first);
      if (!flights_.empty()) next = std::min(next, flights_.begin()->first);
      // With nothing under way it is for the body to go on.
      now_ = std::clamp(next, now_ + std::chrono::nanoseconds(1), now_ + std::chrono::milliseconds(1));
      while (!flights_.empty() && flights_.begin()->first <= now_) {
        Flight& flight = flights_.begin()->second;
        waiting_[flight.to].push_back({now_, std::move(flight.bytes)});
        flights_.erase(flights_.begin());
      }
      move_rivals();
      for (std::size_t end = 0; end < 2; ++end) {
        if (!is_awake(end) || (now_ < looks_at_[end] && now_ < ends_[end]->due(now_))) continue;
        looks_at_[end] = now_ + options_.looks;
        for (Waiting& each : std::exchange(waiting_[end], {})) arrive(end, each);
        ends_[end]->on_time(now_);
      }
    }
    return false;
  }

  // Sends beside `end`, from then on.
  void add_rival(std::size_t end, std::unique_ptr<TcpRival> rival, double begin_seconds) {
    rivals_.emplace_back(end, std::move(rival));
    rivals_begin_at_ =
        Time() + std::chrono::seconds(1) +
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(begin_seconds));
  }
  void remove_rivals() {
    rivals_.clear();
    rival_flights_.clear();
  }
  const TcpRival& rival(std::size_t index) const { return *rivals_[index].second; }

  std::uint64_t dropped() const { return dropped_; }
  std::size_t largest() const { return largest_; }  // packet that was sent
  std::uint64_t queued_most() const { return queued_most_; }
  void forget_queue() { queued_most_ = 0; }
  void set_loss(double loss) { options_.loss = loss; }
  void set_most_packet_bytes(std::size_t bytes) { options_.most_packet_bytes = bytes; }
  // Every packet also goes to `tap`, which may change it.
  std::function<void(std::vector<std::byte>&)> tap = {};

 private:
  struct Flight {
    std::size_t to;
    std::vector<std::byte> bytes;
  };

  struct Waiting {
    Time since{};
    std::vector<std::byte> bytes;
  };

  struct RivalFlight {
    std::size_t index;
    std::uint64_t number;
    bool back;  // it is the acknowledgement
    Time arrived{};
  };

  static std::uint64_t key(std::uint64_t end) { return 100 + end; }
  bool happens(double share) { return std::uniform_real_distribution<>()(random_) < share; }

  void pump(std::size_t from) {
    transport::OutgoingPacket packet;
    while (ends_[from]->next_packet(now_, packet)) {
      std::vector<std::byte> bytes(packet.head.begin(),
                                   packet.head.begin() + static_cast<std::ptrdiff_t>(packet.head_bytes));
      bytes.insert(bytes.end(), packet.payload.begin(), packet.payload.end());
      bytes.resize(bytes.size() + options_.seal_bytes);
      largest_ = std::max(largest_, bytes.size());
      if (bytes.size() > options_.most_packet_bytes || happens(options_.loss)) {
        ++dropped_;
        continue;
      }
      Time at;
      if (!arrives(from, bytes.size(), at)) continue;
      if (happens(options_.reordered)) at += options_.delay * (random_() % 100) / 100;
      if (happens(options_.duplicated)) flights_.emplace(at + options_.delay / 3, Flight{1 - from, bytes});
      flights_.emplace(at, Flight{1 - from, std::move(bytes)});
    }
  }

  // The bottleneck sends one packet after the other and holds so many that wait. When this one gets there, if it does.
  bool arrives(std::size_t from, std::size_t bytes, Time& at) {
    Time& free = free_at_[from];
    const auto backlog = std::max(free - now_, std::chrono::nanoseconds(0));
    const double queued = std::chrono::duration<double>(backlog).count() * options_.bytes_per_second;
    if (queued > static_cast<double>(options_.queue_bytes)) {
      ++dropped_;
      return false;
    }
    queued_most_ = std::max(queued_most_, static_cast<std::uint64_t>(queued));
    const std::chrono::duration<double> takes(static_cast<double>(bytes) / options_.bytes_per_second);
    const std::chrono::duration<double> rest(static_cast<double>(options_.burst_bytes) / options_.bytes_per_second);
    free = std::max(free, now_ - std::chrono::duration_cast<std::chrono::nanoseconds>(rest)) +
           std::chrono::duration_cast<std::chrono::nanoseconds>(takes);
    at = std::max(free, now_) + options_.delay;
    return true;
  }

  void pump_rivals() {
    if (now_ < rivals_begin_at_) return;
    for (std::size_t i = 0; i < rivals_.size(); ++i) {
      auto& [from, rival] = rivals_[i];
      std::uint64_t number = 0;
      while (rival->next_packet(now_, number)) {
        Time at;
        if (happens(options_.loss) || !arrives(from, TcpRival::packet_bytes, at)) continue;
        rival_flights_.emplace(at, RivalFlight{i, number, false});
      }
    }
  }

  // Acknowledgements take their place in the other direction.
  void move_rivals() {
    while (!rival_flights_.empty() && rival_flights_.begin()->first <= now_) {
      const auto [index, number, back, arrived] = rival_flights_.begin()->second;
      rival_flights_.erase(rival_flights_.begin());
      const auto& [from, rival] = rivals_[index];
      Time at;
      if (back)
        rival->acknowledged(now_, number, arrived);
      else if (arrives(1 - from, TcpRival::acknowledgement_bytes, at))
        rival_flights_.emplace(at, RivalFlight{index, number, true, now_});
    }
    for (const auto& [from, rival] : rivals_) rival->on_time(now_);
  }

  void arrive(std::size_t to, Waiting& waiting) {
    std::vector<std::byte>& datagram = waiting.bytes;
    if (tap) tap(datagram);
    const auto sealed = static_cast<std::ptrdiff_t>(std::min(datagram.size(), options_.seal_bytes));
    datagram.erase(datagram.end() - sealed, datagram.end());
    transport::Packet packet;
    if (transport::parse_packet(datagram, key(to), packet)) ends_[to]->receive(now_, packet, waiting.since);
  }

  bool is_awake(std::size_t end) const { return now_ >= wakes_at_[end]; }
  void rest(std::size_t end) {
    if (options_.rest == std::chrono::nanoseconds(0) || now_ < rests_at_[end]) return;
    const auto some = [&](std::chrono::nanoseconds mean) {
      return std::chrono::nanoseconds(
          static_cast<std::int64_t>(std::exponential_distribution<>(1 / static_cast<double>(mean.count()))(random_)));
    };
    wakes_at_[end] = now_ + some(options_.rest);
    rests_at_[end] = wakes_at_[end] + some(options_.run);
  }

  PathOptions options_;
  std::mt19937 random_;
  std::unique_ptr<transport::UdpConnection> ends_[2];
  Time now_ = Time() + std::chrono::seconds(1);
  Time free_at_[2]{}, rests_at_[2]{}, wakes_at_[2]{}, looks_at_[2]{};
  std::vector<Waiting> waiting_[2];  // for an end that stands still
  std::multimap<Time, Flight> flights_;
  std::vector<std::pair<std::size_t, std::unique_ptr<TcpRival>>> rivals_;
  Time rivals_begin_at_{};
  std::multimap<Time, RivalFlight> rival_flights_;
  std::uint64_t dropped_ = 0;
  std::size_t largest_ = 0;
  std::uint64_t queued_most_ = 0;
};

}  // namespace ranvier::support
