#include "transport/tcp_transport.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "ranvier/error.h"

namespace ranvier::transport {
namespace {

constexpr std::size_t slice = 512 << 10;         // fastest of 64 KiB to 4 MiB
constexpr std::size_t buffer_bytes = 512 << 10;  // of what arrived: stays in L2 until it is reduced
constexpr std::size_t buffer_alignment = 4096;
constexpr std::size_t direct_bytes =
    16 << 10;  // from here on a copy costs more than what follows in the same packet saves
constexpr std::size_t largest_element = 8;
// After so many bytes the kernel is asked to acknowledge at once. Left to delay it, as it does between ranks that
// answer each other, 1 MiB took 430 us in the first operations after a pause, and 230 so; small operations do not pay
// for it.
constexpr std::size_t acknowledged_bytes = 128 << 10;
constexpr std::size_t little = 4096;   // moved to the front of the buffer rather than left to shorten the next read
constexpr std::size_t most_head = 64;  // see Transport::try_send

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};

// One socket: a lane to one peer.
struct Channel {
  Fd socket;
  std::string remote;  // its address, for error messages

  // The end of a head of which the kernel took only the beginning.
  std::array<std::byte, most_head> rest{};
  std::size_t rest_begin = 0;
  std::size_t rest_end = 0;
  bool blocked = false;  // the kernel's buffer was full at the last attempt to send
  bool listed = false;   // in TcpTransport::blocked_
  bool watched = false;  // epoll waits for writability

  // What arrived and was not released: [begin, end).
  std::unique_ptr<std::byte[], Free> buffer;
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t unacknowledged = 0;  // read since the kernel was last asked
  bool seen = false;               // the caller has had a view of all of it, and used nothing
  bool ended = false;
  int problem = 0;  // the errno that ended it; 0 for an orderly end

  std::size_t unread() const { return end - begin; }
};

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
  TcpTransport(Rank rank, Rank world, std::vector<Fd> sockets)
      : rank_(rank), world_(world), channels_(sockets.size()), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_) throw Error(ErrorKind::config, fmt::format("cannot create an epoll: {}", std::strerror(errno)));
    std::size_t local_ranks = 1;
    for (std::size_t i = 0; i < sockets.size(); ++i) {
      if (!sockets[i]) continue;
      local_ranks += i % lane_count == 0 && is_local(sockets[i]) ? 1 : 0;
      buffered_bytes_ = std::min(buffered_bytes_, ranvier::buffered_bytes(sockets[i]));
      channels_[i].remote = remote_address(sockets[i]).text();
      channels_[i].socket = std::move(sockets[i]);
      watch(EPOLL_CTL_ADD, channels_[i].socket, EPOLLIN, i);
    }
    watch(EPOLL_CTL_ADD, interrupt_, EPOLLIN, channels_.size());
    blocked_.reserve(channels_.size());
    crowded_ = static_cast<std::size_t>(sysconf(_SC_NPROCESSORS_ONLN)) < local_ranks;
  }

  // What was accepted is still delivered: the ends are closed one after the other, and what arrived meanwhile is read,
  // since closing a socket with unread bytes makes the kernel throw away unsent ones (RFC 2525, 2.17).
  ~TcpTransport() override {
    for (Channel& channel : channels_) {
      if (!channel.socket) continue;
      flush(channel);
      shutdown(channel.socket.get(), SHUT_WR);
      // More than this no peer has under way. MSG_TRUNC would throw it away without a copy (tcp(7)), but race detectors
      // take that for a write.
      std::array<std::byte, 16 << 10> thrown_away;
      for (int reads = 0; reads < 4096; ++reads)
        if (recv(channel.socket.get(), thrown_away.data(), thrown_away.size(), MSG_DONTWAIT) <= 0) break;
    }
  }

  Rank rank() const override { return rank_; }
  Rank world() const override { return world_; }

  // A waiter that spins without yielding starves the kernel's network thread, whose packets it waits for; with more
  // ranks than cores, every poll also keeps the one that is waited for from running.
  TransportTraits traits() const override {
    return {.name = "tcp",
            .slice_bytes = slice,
            .buffered_bytes = buffered_bytes_,
            .crowded = crowded_,
            .polls_before_yield = crowded_ ? 0 : 10,
            .polls_before_wait = 150};
  }

  std::size_t try_send(Rank to, Lane lane, ConstBytes head, ConstBytes body) override {
    Channel& channel = this->channel(to, lane);
    if (!flush(channel)) return 0;
    // The kernel only reads what a sendmsg points at, whatever iovec says.
    std::array<iovec, 2> parts{iovec{const_cast<std::byte*>(head.data()), head.size()},
                               iovec{const_cast<std::byte*>(body.data()), body.size()}};
    msghdr message{};
    message.msg_iov = parts.data() + (head.empty() ? 1 : 0);
    message.msg_iovlen = head.empty() ? 1 : 2;
    const std::size_t offered = head.size() + body.size();
    const std::size_t accepted = push(channel, to, lane, message);
    if (accepted < offered) block(channel);
    if (accepted == 0 || accepted >= head.size() || head.size() > most_head) return accepted;
    const ConstBytes rest = head.subspan(accepted);
    std::ranges::copy(rest, channel.rest.begin());
    channel.rest_begin = 0;
    channel.rest_end = rest.size();
    ++unflushed_;
    return head.size();
  }

  bool sent(Rank to, Lane lane) override { return unflushed_ == 0 || flush(channel(to, lane)); }

  ConstBytes try_recv(Rank from, Lane lane, Bytes into) override {
    Channel& channel = this->channel(from, lane);
    if (unflushed_ > 0) [[unlikely]]
      flush_all();
    if (channel.unread() == 0) {
      if (into.size() >= direct_bytes) return into.first(pull(channel, from, lane, into));
      if (!channel.buffer) allocate(channel);
      channel.begin = 0;
      channel.end = pull(channel, from, lane, {channel.buffer.get(), buffer_bytes});
    } else if (channel.seen || (into.empty() && channel.unread() < largest_element)) {
      grow(channel);
    } else {
      unsure_ = true;
    }
    channel.seen = true;
    return {channel.buffer.get() + channel.begin, channel.unread()};
  }

  void release(Rank from, Lane lane, std::size_t bytes) override {
    Channel& channel = this->channel(from, lane);
    if (bytes == 0) return;
    if (bytes > channel.unread())
      throw Error(ErrorKind::internal, fmt::format("rank {} released {} B of a view of {} B; please report this", rank_,
                                                   bytes, channel.unread()));
    channel.begin += bytes;
    channel.seen = false;
  }

  void wait(std::chrono::nanoseconds limit) override {
    if (cancelled_ || std::exchange(unsure_, false)) return;
    if (unflushed_ > 0) flush_all();
    for (const std::size_t index : blocked_) {
      Channel& channel = channels_[index];
      channel.listed = false;
      if (!channel.blocked || channel.watched) continue;
      watch(EPOLL_CTL_MOD, channel.socket, EPOLLIN | EPOLLOUT, index);
      channel.watched = true;
    }
    blocked_.clear();
    std::array<epoll_event, 64> events;
    const int count = wait_for_events(epoll_.get(), events.data(), events.size(), limit);
    for (int i = 0; i < count; ++i) {
      const std::size_t index = events[static_cast<std::size_t>(i)].data.u64;
      if (index == channels_.size() || (events[static_cast<std::size_t>(i)].events & EPOLLOUT) == 0) continue;
      watch(EPOLL_CTL_MOD, channels_[index].socket, EPOLLIN, index);
      channels_[index].watched = false;
    }
    if (unflushed_ > 0) flush_all();
  }

  // Edge-triggered, the event wakes one wait() with each write and is never read.
  void interrupt() override { signal_event(interrupt_); }

  // The kernel has its own copy of whatever was accepted; that still arrives, then the peer sees the end.
  void cancel() override {
    cancelled_ = true;
    for (Channel& channel : channels_)
      if (channel.socket) shutdown(channel.socket.get(), SHUT_WR);
  }

 private:
  Channel& channel(Rank peer, Lane lane) {
    if (cancelled_) [[unlikely]]
      throw Error(ErrorKind::aborted,
                  fmt::format("rank {} used tcp after it was cancelled; make a new communicator", rank_));
    const std::size_t index = static_cast<std::size_t>(peer) * lane_count + lane;
    if (lane >= lane_count || index >= channels_.size() || !channels_[index].socket) [[unlikely]]
      throw Error(ErrorKind::usage,
                  fmt::format("rank {} of {} has no tcp lane {} to rank {}", rank_, world_, lane, peer));
    return channels_[index];
  }

  // Edge-triggered: bytes that wait for an operation that has not begun must not keep others from sleeping. No byte is
  // missed, as callers poll whatever they wait for once more before they wait, and a poll that did not ask the kernel
  // (see unsure_) ends the next wait at once.
  void watch(int operation, const Fd& socket, std::uint32_t events, std::size_t index) {
    epoll_event event{};
    event.events = events | EPOLLET;
    event.data.u64 = index;
    if (epoll_ctl(epoll_.get(), operation, socket.get(), &event) != 0)
      throw Error(ErrorKind::config,
                  fmt::format("cannot watch a socket: {}; see fs.epoll.max_user_watches", std::strerror(errno)));
  }

  void block(Channel& channel) {
    channel.blocked = true;
    if (channel.listed) return;
    channel.listed = true;
    blocked_.push_back(static_cast<std::size_t>(&channel - channels_.data()));
  }

  std::size_t push(Channel& channel, Rank to, Lane lane, const msghdr& message) {
    const ssize_t accepted = sendmsg(channel.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    channel.blocked = false;
    if (accepted >= 0) return static_cast<std::size_t>(accepted);
    if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ENOMEM) return 0;
    throw_lost(channel, to, lane, errno);
  }

  // Sends the rest of a head that was taken in part; whether nothing is left of it.
  bool flush(Channel& channel) {
    if (channel.rest_begin == channel.rest_end) return true;
    const ssize_t accepted = send(channel.socket.get(), channel.rest.data() + channel.rest_begin,
                                  channel.rest_end - channel.rest_begin, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (accepted > 0) channel.rest_begin += static_cast<std::size_t>(accepted);
    // A lost peer is the business of the next try_send or try_recv; here there is nobody to tell.
    if (accepted < 0 && errno != EAGAIN && errno != EINTR) channel.rest_begin = channel.rest_end;
    if (channel.rest_begin < channel.rest_end) {
      block(channel);
      return false;
    }
    --unflushed_;
    return true;
  }

  void flush_all() {
    for (Channel& channel : channels_) flush(channel);
  }

  // Reads what has arrived. Throws at the end of the connection: whatever came before it was returned by then.
  std::size_t pull(Channel& channel, Rank from, Lane lane, Bytes into) {
    const std::size_t got = read(channel, into);
    if (got == 0 && channel.ended) throw_lost(channel, from, lane, channel.problem);
    return got;
  }

  std::size_t read(Channel& channel, Bytes into) {
    if (channel.ended || into.empty()) return 0;
    const ssize_t got = recv(channel.socket.get(), into.data(), into.size(), MSG_DONTWAIT);
    if (got > 0) {
      channel.unacknowledged += static_cast<std::size_t>(got);
      if (channel.unacknowledged >= acknowledged_bytes) {
        acknowledge_at_once(channel.socket);
        channel.unacknowledged = 0;
      }
      return static_cast<std::size_t>(got);
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    channel.ended = true;
    channel.problem = got < 0 ? errno : 0;
    return 0;
  }

  // Puts what has arrived since behind what the caller has not used. At the end of the connection the view just stays:
  // it may be a whole message that nobody wants yet.
  void grow(Channel& channel) {
    if (channel.begin > 0 && (channel.end == buffer_bytes || channel.unread() < little)) {
      std::memmove(channel.buffer.get(), channel.buffer.get() + channel.begin, channel.unread());
      channel.end -= channel.begin;
      channel.begin = 0;
    }
    channel.end += read(channel, {channel.buffer.get() + channel.end, buffer_bytes - channel.end});
  }

  void allocate(Channel& channel) {
    channel.buffer.reset(static_cast<std::byte*>(std::aligned_alloc(buffer_alignment, buffer_bytes)));
    if (!channel.buffer) throw std::bad_alloc();
  }

  [[noreturn]] void throw_lost(const Channel& channel, Rank peer, Lane lane, int problem) const {
    throw Error(
        ErrorKind::peer_lost,
        fmt::format("rank {} closed its tcp connection to rank {} (lane {}, {}{}); see what rank {} says", peer, rank_,
                    lane, channel.remote, problem == 0 ? "" : fmt::format(": {}", std::strerror(problem)), peer),
        peer);
  }

  const Rank rank_;
  const Rank world_;
  std::vector<Channel> channels_;     // by peer, then lane
  std::vector<std::size_t> blocked_;  // channels to watch for writability when next we sleep
  std::size_t unflushed_ = 0;         // channels with the rest of a head
  std::size_t buffered_bytes_ = std::size_t{1} << 40;
  bool unsure_ = false;  // a view was returned without a look at what has arrived since
  bool cancelled_ = false;
  bool crowded_ = false;  // more ranks than cores on this host
  Fd epoll_;
  Fd interrupt_ = event_descriptor();
};

}  // namespace

std::unique_ptr<Transport> tcp_transport(Rank rank, Rank world, std::vector<Fd> sockets) {
  return std::make_unique<TcpTransport>(rank, world, std::move(sockets));
}

}  // namespace ranvier::transport
