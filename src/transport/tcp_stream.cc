#include "transport/tcp_stream.h"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/ticks.h"
#include "ranvier/error.h"

namespace ranvier::transport {
namespace {

// From here on a copy costs more than what follows in the same packet saves.
constexpr std::size_t direct_bytes = 16 << 10;
constexpr std::size_t largest_element = 8;
// That a sleeper lets come before he wakes up: few enough for the kernel to hold, while more follows.
constexpr std::size_t most_awaited = 64 << 10;
constexpr std::size_t little = 4096;  // moved to the front of the buffer rather than left to shorten the next read

// Throws away what has come. How much of what was sent has not arrived there, as far as the kernel has been told; 0
// also where nothing can come any more that it would answer with a reset.
std::size_t unsettled_bytes(const Fd& socket) {
  // More at a time than a peer has under way. MSG_TRUNC would throw it away without a copy (tcp(7)), but race detectors
  // take that for a write.
  std::array<std::byte, 16 << 10> thrown_away;
  for (int reads = 0; reads < 4096; ++reads) {
    const ssize_t got = recv(socket.get(), thrown_away.data(), thrown_away.size(), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return 0;
    if (got < 0) break;
  }
  constexpr int end = 1;  // of the stream: it counts as a byte, and nobody waits for its acknowledgement
  int unacknowledged = end;
  ioctl(socket.get(), SIOCOUTQ, &unacknowledged);
  return static_cast<std::size_t>(std::max(unacknowledged - end, 0));
}

}  // namespace

TcpStream::TcpStream(std::string_view transport, Rank self, Rank peer, Lane lane, std::vector<Channel> channels,
                     ReceiveBuffers& buffers)
    : transport_(transport),
      self_(self),
      peer_(peer),
      lane_(lane),
      channels_(std::move(channels)),
      stripe_(channels_.size() > 1 ? stripe_bytes : std::numeric_limits<std::size_t>::max()),
      remote_(remote_address(channels_.front().socket()).text()),
      sending_{.left = stripe_},
      receiving_{.left = stripe_},
      buffers_(buffers) {}

void TcpStream::advance(Cursor& cursor, std::size_t bytes) const {
  cursor.left -= bytes;
  if (cursor.left > 0) return;
  cursor.socket = (cursor.socket + 1) % channels_.size();
  cursor.left = stripe_;
}

std::size_t TcpStream::buffered_bytes() const {
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (const Channel& channel : channels_) least = std::min(least, ranvier::buffered_bytes(channel.socket()));
  return least + (channels_.size() - 1) * (least - std::min(least, stripe_bytes));
}

// ---- Sending.

// Returns how much of both the kernel took; all of it, or the socket whose turn it is then has no room.
std::size_t TcpStream::write(ConstBytes head, ConstBytes body) {
  const std::size_t offered = head.size() + body.size();
  std::size_t accepted = 0;
  blocked_ = false;
  while (accepted < offered) {
    const ConstBytes now_head = head.first(std::min(head.size(), sending_.left));
    const ConstBytes now_body = body.first(std::min(body.size(), sending_.left - now_head.size()));
    Channel& channel = channels_[sending_.socket];
    const ssize_t result = channel.send(now_head, now_body);
    if (result < 0 && !is_transient(errno)) throw_lost(channel, errno);
    const auto taken = static_cast<std::size_t>(std::max<ssize_t>(result, 0));
    accepted += taken;
    advance(sending_, taken);
    if (taken < now_head.size() + now_body.size() || !channel.flushed()) {
      blocked_ = !channel.awaits_leave();
      break;
    }
    head = head.subspan(now_head.size());
    body = body.subspan(now_body.size());
  }
  return accepted;
}

std::size_t TcpStream::try_send(ConstBytes head, ConstBytes body) {
  if (!flush()) return 0;
  const std::size_t accepted = write(head, body);
  if (accepted == 0 || accepted >= head.size() || head.size() > most_head) return accepted;
  const ConstBytes rest = head.subspan(accepted);
  std::ranges::copy(rest, rest_.begin());
  rest_begin_ = 0;
  rest_end_ = rest.size();
  return head.size();
}

bool TcpStream::flushed() const {
  return rest_begin_ == rest_end_ && std::ranges::all_of(channels_, &Channel::flushed);
}

std::size_t TcpStream::blocked_socket() const {
  const auto crowded = std::ranges::find_if_not(channels_, &Channel::flushed);
  return crowded == channels_.end() ? sending_.socket : static_cast<std::size_t>(crowded - channels_.begin());
}

bool TcpStream::flush() {
  if (flushed()) return true;
  for (Channel& channel : channels_) channel.flush();
  blocked_ = !std::ranges::all_of(channels_, &Channel::flushed);
  if (rest_begin_ == rest_end_) return !blocked_;
  try {
    rest_begin_ += write(ConstBytes(rest_).subspan(rest_begin_, rest_end_ - rest_begin_), {});
  } catch (const Error&) {
    rest_begin_ = rest_end_;  // the next try_send or try_recv tells of the lost peer; here there is nobody to tell
  }
  return flushed();
}

void TcpStream::shut_down() {
  flush();
  for (Channel& channel : channels_) channel.end_sending();
}

// A kernel that gets bytes for a socket that was closed, or closes one with bytes that nobody has read, ends the
// connection by a reset, and what it has not sent is lost (RFC 1122, 4.2.2.13; RFC 2525, 2.17). And most peers have
// something to say: over grpc whoever reads lets its peer send more.
std::size_t TcpStream::leave() {
  const bool all_sent = flush();
  std::size_t unsettled = all_sent ? 0 : 1;
  for (Channel& channel : channels_) {
    if (all_sent) {
      channel.end_sending();
      shutdown(channel.socket().get(), SHUT_WR);
    }
    unsettled += unsettled_bytes(channel.socket());
  }
  return unsettled;
}

// ---- Receiving.

ConstBytes TcpStream::try_recv(Bytes into) {
  unsure_ = false;
  if (unread() == 0) {
    if (into.size() >= direct_bytes) return into.first(pull(into));
    if (!buffer_) buffer_ = buffers_.take();
    begin_ = 0;
    end_ = pull({buffer_.get(), ReceiveBuffers::bytes});
    if (end_ == 0) buffers_.give(std::move(buffer_));
  } else if (seen_ || (into.empty() && unread() < largest_element)) {
    grow();
  } else {
    unsure_ = true;
  }
  seen_ = true;
  return {buffer_.get() + begin_, unread()};
}

void TcpStream::release(std::size_t bytes) {
  if (bytes == 0) return;
  if (bytes > unread())
    throw Error(ErrorKind::internal,
                fmt::format("rank {} released {} B of a view of {} B; please report this", self_, bytes, unread()));
  begin_ += bytes;
  seen_ = false;
  if (unread() > 0) return;
  begin_ = end_ = 0;
  buffers_.give(std::move(buffer_));
}

// Reads what has arrived. Throws at the end of the connection: whatever came before it was returned by then.
std::size_t TcpStream::pull(Bytes into) {
  const std::size_t got = read(into);
  if (got == 0 && ended_) throw_lost(channels_[receiving_.socket], problem_);
  return got;
}

std::size_t TcpStream::read(Bytes into) {
  std::size_t total = 0;
  while (total < into.size() && !ended_) {
    const std::size_t wanted = std::min(into.size() - total, receiving_.left);
    const ssize_t got = channels_[receiving_.socket].recv(into.subspan(total, wanted));
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (got <= 0) {
      ended_ = true;
      problem_ = got < 0 ? errno : 0;
      break;
    }
    const auto bytes = static_cast<std::size_t>(got);
    total += bytes;
    advance(receiving_, bytes);
    if (bytes < wanted) break;
  }
  if (total > 0) pace_.came(total, ticks());
  return total;
}

bool TcpStream::takes_long(std::size_t bytes) const { return bytes > unread() && pace_.takes_long(bytes - unread()); }

// No more than is still to come on the socket whose turn it is, or it would be waited for in vain. What records of TLS
// and frames of HTTP/2 add to their content is not counted, so that it may be a little less. Leave to send more is said
// in few bytes.
TcpStream::Awaited TcpStream::awaited(std::size_t bytes) const {
  const Channel& channel = channels_[receiving_.socket];
  if (channel.awaits_leave()) return {receiving_.socket, 1};
  const std::size_t at_once = std::min(pace_.before_waking(bytes - std::min(bytes, unread())), most_awaited);
  const std::size_t here = std::min(at_once, receiving_.left);
  return {receiving_.socket, std::max<std::size_t>(here - std::min(here, channel.held()), 1)};
}

// Puts what has arrived since behind what the caller has not used. Where the peer has closed the connection, or reset
// it, the view just stays: it may be a whole message that nobody wants yet.
void TcpStream::grow() {
  if (begin_ > 0 && (end_ == ReceiveBuffers::bytes || unread() < little)) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, unread());
    end_ -= begin_;
    begin_ = 0;
  }
  const std::size_t got = read({buffer_.get() + end_, ReceiveBuffers::bytes - end_});
  end_ += got;
  // Refused here: the peer lives, and the rest of what the caller waits for, of an element perhaps, will never come.
  if (got == 0 && (problem_ == EBADMSG || problem_ == EPROTO)) throw_lost(channels_[receiving_.socket], problem_);
}

void TcpStream::throw_lost(const Channel& channel, int problem) const {
  std::string why = channel.tls() == nullptr ? "" : channel.tls()->problem();
  if (why.empty() && problem != 0) why = std::strerror(problem);
  throw Error(ErrorKind::peer_lost,
              fmt::format("rank {} closed its {} connection to rank {} (lane {}, {}{}{}); see what rank {} says", peer_,
                          transport_, self_, lane_, remote_, why.empty() ? "" : ": ", why, peer_),
              peer_);
}

}  // namespace ranvier::transport
