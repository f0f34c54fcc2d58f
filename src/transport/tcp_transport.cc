#include "transport/tcp_transport.h"

#include <fmt/format.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <span>
#include <utility>

#include "ranvier/error.h"
#include "transport/tcp_stream.h"

namespace ranvier::transport {
namespace {

constexpr std::size_t slice = 512 << 10;  // fastest of 64 KiB to 4 MiB
// At the end: how long peers are waited for that do not read, or are gone without a word, all of them together; and how
// long those who read slowly.
constexpr auto longest_pause = std::chrono::seconds(2);
constexpr auto longest_farewell = std::chrono::seconds(30);
constexpr auto look_again = std::chrono::milliseconds(1);

// epoll_pwait2 where the kernel has it (5.11) and the container lets it through: paced senders wait for less than a
// millisecond.
int wait_for_events(int epoll, epoll_event* events, int most, std::chrono::nanoseconds limit) {
  limit = std::clamp<std::chrono::nanoseconds>(limit, std::chrono::nanoseconds(0), std::chrono::hours(1));
  const auto seconds = std::chrono::floor<std::chrono::seconds>(limit);
  const timespec time{.tv_sec = seconds.count(), .tv_nsec = (limit - seconds).count()};
  const int count = epoll_pwait2(epoll, events, most, &time, nullptr);
  if (count >= 0 || errno == EINTR) return count;
  return epoll_wait(epoll, events, most, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(limit).count()));
}

class TcpTransport final : public Transport {
 public:
  TcpTransport(std::string_view name, Rank rank, Rank world, std::size_t sockets_per_link,
               std::vector<Channel> channels, int ranks_per_core)
      : name_(name),
        rank_(rank),
        world_(world),
        sockets_per_link_(sockets_per_link),
        buffers_(channels.size() / sockets_per_link),
        streams_(channels.size() / sockets_per_link),
        watched_(channels.size()),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        ranks_per_core_(ranks_per_core) {
    if (!epoll_) throw Error(ErrorKind::config, fmt::format("cannot create an epoll: {}", std::strerror(errno)));
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      const std::span<Channel> own(channels.data() + i * sockets_per_link, sockets_per_link);
      if (!own.front()) continue;
      for (std::size_t k = 0; k < own.size(); ++k)
        watch(EPOLL_CTL_ADD, own[k].socket(), EPOLLIN, i * sockets_per_link + k);
      streams_[i] = std::make_unique<TcpStream>(
          name, rank, static_cast<Rank>(i / lane_count), static_cast<Lane>(i % lane_count),
          std::vector<Channel>(std::make_move_iterator(own.begin()), std::make_move_iterator(own.end())), buffers_);
      buffered_bytes_ = std::min(buffered_bytes_, streams_[i]->buffered_bytes());
    }
    watch(EPOLL_CTL_ADD, interrupt_, EPOLLIN, watched_.size());
    blocked_.reserve(streams_.size());
  }

  ~TcpTransport() override {
    if (given_up_) return;  // whoever still waits for something of this rank's is told why not
    const auto begin = std::chrono::steady_clock::now();
    std::size_t unsettled = 0;
    for (auto now = begin, moved = begin;; now = std::chrono::steady_clock::now()) {
      const std::size_t before = std::exchange(unsettled, 0);
      std::erase_if(streams_, [&](const auto& stream) {
        const std::size_t bytes = stream ? stream->leave() : 0;
        unsettled += bytes;
        return bytes == 0;
      });
      if (unsettled != before) moved = now;
      if (streams_.empty() || now - moved >= longest_pause || now - begin >= longest_farewell) return;
      // What arrives ends the sleep, an acknowledgement does not.
      std::array<epoll_event, 64> events;
      wait_for_events(epoll_.get(), events.data(), events.size(), look_again);
    }
  }

  Rank rank() const override { return rank_; }
  Rank world() const override { return world_; }

  // A waiter that spins without yielding starves the kernel's network thread, whose packets it waits for; with more
  // ranks than cores, every poll also keeps the one that is waited for from running.
  TransportTraits traits() const override {
    return {.name = name_,
            .slice_bytes = slice,
            .buffered_bytes = buffered_bytes_,
            .ranks_per_core = ranks_per_core_,
            .polls_before_yield = ranks_per_core_ > 1 ? 0 : 10,
            .polls_before_wait = 150};
  }

  std::size_t try_send(Rank to, Lane lane, ConstBytes head, ConstBytes body) override {
    TcpStream& stream = this->stream(to, lane);
    const bool was_flushed = stream.flushed();
    const std::size_t accepted = stream.try_send(head, body);
    settle(stream, was_flushed);
    return accepted;
  }

  bool sent(Rank to, Lane lane) override { return unflushed_ == 0 || flush(stream(to, lane)); }

  ConstBytes try_recv(Rank from, Lane lane, Bytes into) override {
    TcpStream& stream = this->stream(from, lane);
    if (unflushed_ > 0) [[unlikely]]
      flush_all();
    const ConstBytes view = stream.try_recv(into);
    unsure_ |= stream.unsure();
    return view;
  }

  void release(Rank from, Lane lane, std::size_t bytes) override { stream(from, lane).release(bytes); }

  void wait(std::chrono::nanoseconds limit) override {
    if (cancelled_ || std::exchange(unsure_, false)) return awaited_.clear();
    if (unflushed_ > 0) flush_all();
    watch_blocked();
    set_low_water();
    std::array<epoll_event, 64> events;
    const int count = wait_for_events(epoll_.get(), events.data(), events.size(), limit);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      const std::size_t number = event.data.u64;
      if (number == watched_.size() || (event.events & EPOLLOUT) == 0) continue;
      watch(EPOLL_CTL_MOD, socket(number), EPOLLIN, number);
      watched_[number] = false;
    }
    if (unflushed_ > 0) flush_all();
  }

  bool expect(std::span<const Expected> all) override {
    awaited_.clear();
    if (cancelled_) return false;  // nothing comes any more: whoever asks finds that out
    for (const Expected& each : all)
      if (!stream(each.from, each.lane).takes_long(each.most)) return false;
    for (const Expected& each : all) {
      const auto [socket, bytes] = stream(each.from, each.lane).awaited(each.bytes);
      awaited_.push_back({number_of(each.from, each.lane) + socket, bytes});
    }
    return true;
  }

  // struct tcp_info: data segments, and how many of them went again, but for those that the receiver says it has twice
  // (D-SACK, RFC 2883): they had not been lost. Kernels before 4.20 do not count these.
  std::optional<PacketCounts> packet_counts() const override {
    PacketCounts all;
    for (std::size_t i = 0; i < watched_.size(); ++i) {
      if (!streams_[i / sockets_per_link_]) continue;
      tcp_info info{};
      socklen_t size = sizeof info;
      if (getsockopt(socket(i).get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
      if (size < offsetof(tcp_info, tcpi_data_segs_out) + sizeof info.tcpi_data_segs_out) return std::nullopt;
      all.sent += info.tcpi_data_segs_out;
      const bool knows_doubles = size >= offsetof(tcp_info, tcpi_dsack_dups) + sizeof info.tcpi_dsack_dups;
      all.lost += info.tcpi_total_retrans - std::min(info.tcpi_total_retrans, knows_doubles ? info.tcpi_dsack_dups : 0);
    }
    return all;
  }

  // Edge-triggered, the event wakes one wait() with each write and is never read.
  void interrupt() override { signal_event(interrupt_); }

  void cancel() override {
    given_up_ = true;
    cancelled_ = true;
    for (const auto& stream : streams_)
      if (stream) stream->shut_down();
  }

  // No stream ends before the kernel has taken all of it: the destructor goes on with those that it has no room for.
  void close() override {
    cancelled_ = true;
    for (const auto& stream : streams_)
      if (stream) stream->leave();
  }

 private:
  TcpStream& stream(Rank peer, Lane lane) {
    if (cancelled_) [[unlikely]]
      throw Error(ErrorKind::aborted,
                  fmt::format("rank {} used {} after it was cancelled; make a new communicator", rank_, name_));
    const std::size_t index = static_cast<std::size_t>(peer) * lane_count + lane;
    if (lane >= lane_count || index >= streams_.size() || !streams_[index]) [[unlikely]]
      throw Error(ErrorKind::usage,
                  fmt::format("rank {} of {} has no {} lane {} to rank {}", rank_, world_, name_, lane, peer));
    return *streams_[index];
  }

  std::size_t number_of(Rank peer, Lane lane) const {
    return (static_cast<std::size_t>(peer) * lane_count + lane) * sockets_per_link_;
  }

  const Fd& socket(std::size_t number) const {
    return streams_[number / sockets_per_link_]->socket(number % sockets_per_link_);
  }

  // Edge-triggered: bytes that wait for an operation that has not begun must not keep others from sleeping. No byte is
  // missed, as callers poll whatever they wait for once more before they wait, and a poll that did not ask the kernel
  // (see unsure_) ends the next wait at once.
  void watch(int operation, const Fd& socket, std::uint32_t events, std::size_t number) {
    epoll_event event{};
    event.events = events | EPOLLET;
    event.data.u64 = number;
    if (epoll_ctl(epoll_.get(), operation, socket.get(), &event) != 0)
      throw Error(ErrorKind::config,
                  fmt::format("cannot watch a socket: {}; see fs.epoll.max_user_watches", std::strerror(errno)));
  }

  // Waits for room in the sockets that had none. Only before a sleep: most find it again while their caller polls.
  void watch_blocked() {
    for (TcpStream* const stream : blocked_) {
      stream->listed = false;
      if (!stream->blocked()) continue;
      const std::size_t number = number_of(stream->peer(), stream->lane()) + stream->blocked_socket();
      if (watched_[number]) continue;
      watch(EPOLL_CTL_MOD, socket(number), EPOLLIN | EPOLLOUT, number);
      watched_[number] = true;
    }
    blocked_.clear();
  }

  // The kernel ends a sleep when so much has come on a socket as is awaited there; SO_RCVLOWAT of socket(7), which
  // epoll goes by. It also ends it when it has no room for more, and at the end of the connection.
  void set_low_water() {
    std::swap(low_, were_low_);
    low_.clear();
    for (const auto& [number, bytes] : awaited_) {
      const auto same = std::ranges::find(low_, number, &Awaited::number);
      if (same == low_.end())
        low_.push_back({number, bytes});
      else
        same->bytes = std::min(same->bytes, bytes);
    }
    awaited_.clear();
    for (Awaited& each : low_) {
      const auto before = std::ranges::find(were_low_, each.number, &Awaited::number);
      const std::size_t bytes = before == were_low_.end() ? 1 : before->bytes;
      // A little less than it could be is not worth a call.
      if (bytes <= each.bytes && bytes > each.bytes / 2)
        each.bytes = bytes;
      else
        set_low_water(each.number, each.bytes);
    }
    for (const Awaited& each : were_low_)
      if (each.bytes > 1 && std::ranges::find(low_, each.number, &Awaited::number) == low_.end())
        set_low_water(each.number, 1);
  }
  // Where it is refused, sleeps end sooner than they need to.
  void set_low_water(std::size_t number, std::size_t bytes) const {
    const int value = static_cast<int>(bytes);
    setsockopt(socket(number).get(), SOL_SOCKET, SO_RCVLOWAT, &value, sizeof value);
  }

  // Takes note of what an attempt to send has left.
  void settle(TcpStream& stream, bool was_flushed) {
    if (stream.flushed() != was_flushed) unflushed_ += was_flushed ? 1 : -1;
    if (!stream.blocked() || std::exchange(stream.listed, true)) return;
    blocked_.push_back(&stream);
  }

  bool flush(TcpStream& stream) {
    const bool was_flushed = stream.flushed();
    stream.flush();
    settle(stream, was_flushed);
    return stream.flushed();
  }

  void flush_all() {
    for (const auto& stream : streams_)
      if (stream) flush(*stream);
  }

  const std::string_view name_;
  const Rank rank_;
  const Rank world_;
  const std::size_t sockets_per_link_;
  ReceiveBuffers buffers_;
  std::vector<std::unique_ptr<TcpStream>> streams_;  // by peer, then lane; empty for this rank itself
  std::vector<bool> watched_;                        // by socket: epoll waits for writability
  std::vector<TcpStream*> blocked_;                  // to watch for writability when next we sleep
  struct Awaited {
    std::size_t number = 0;  // of a socket
    std::size_t bytes = 0;
  };
  std::vector<Awaited> awaited_;         // in the next wait()
  std::vector<Awaited> low_, were_low_;  // sockets whose low water is not 1, and those of the last wait()
  int unflushed_ = 0;                    // streams that hold what the kernel has not taken
  std::size_t buffered_bytes_ = std::size_t{1} << 40;
  bool unsure_ = false;  // a view was returned without a look at what has arrived since
  bool cancelled_ = false;
  bool given_up_ = false;  // for good: what was accepted, too
  Fd epoll_;
  const int ranks_per_core_;
  Fd interrupt_ = event_descriptor();
};

}  // namespace

std::unique_ptr<Transport> tcp_transport(std::string_view name, Rank rank, Rank world, std::size_t sockets_per_link,
                                         std::vector<Channel> channels, int ranks_per_core) {
  return std::make_unique<TcpTransport>(name, rank, world, sockets_per_link, std::move(channels), ranks_per_core);
}

}  // namespace ranvier::transport
