#include "transport/channel.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace ranvier::transport {
namespace {

// A head goes out in one piece with the words of the call before it, where both are short.
constexpr std::size_t most_joined = 256;

// sendmsg(2) and recvmsg(2) take both as parts of one.
struct Parts {
  // The kernel only reads what a sendmsg points at, whatever iovec says.
  Parts(ConstBytes first, ConstBytes second)
      : Parts(Bytes(const_cast<std::byte*>(first.data()), first.size()),
              Bytes(const_cast<std::byte*>(second.data()), second.size())) {}
  Parts(Bytes first, Bytes second) : each{iovec{first.data(), first.size()}, iovec{second.data(), second.size()}} {
    message.msg_iov = each.data() + (first.empty() ? 1 : 0);
    message.msg_iovlen = first.empty() || second.empty() ? 1 : 2;
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  std::array<iovec, 2> each;
  msghdr message{};
};

}  // namespace

ssize_t Channel::send(ConstBytes head, ConstBytes body) {
  return call_ ? send_in_call(head, body) : send_bytes(head, body);
}

ssize_t Channel::recv(Bytes into) { return call_ ? recv_in_call(into) : recv_bytes(into, {}); }

void Channel::end_sending() {
  if (call_) {
    call_->end();
    if (flush() && !call_->owes_content()) return;
  }
  shutdown(socket_->get(), SHUT_WR);
}

ssize_t Channel::send_in_call(ConstBytes head, ConstBytes body) {
  awaits_leave_ = false;
  std::size_t accepted = 0;
  int problem = EAGAIN;
  for (bool has_listened = false; head.size() + body.size() > 0;) {
    if (call_->has_ended()) {
      problem = EPIPE;  // as a socket that was shut down has it
      break;
    }
    const Http2Call::Due due = call_->due(head.size() + body.size());
    if (due.content == 0) {
      if (!flush_call()) break;
      awaits_leave_ = std::exchange(has_listened, true);
      if (awaits_leave_) break;
      if (!listen()) {
        problem = errno;
        break;
      }
      continue;
    }
    const ConstBytes now_head = head.first(std::min(head.size(), due.content));
    const ConstBytes now_body = body.first(due.content - now_head.size());
    std::array<std::byte, most_joined> joined;
    ConstBytes first = due.words, second = now_head.empty() ? now_body : now_head;
    if (!now_head.empty() && due.words.size() + now_head.size() <= joined.size()) {
      std::ranges::copy(now_head, std::ranges::copy(due.words, joined.begin()).out);
      first = ConstBytes(joined).first(due.words.size() + now_head.size());
      second = now_body;
    }
    const ssize_t taken = send_bytes(first, second);
    if (taken < 0) problem = errno;
    const std::size_t content = call_->sent(static_cast<std::size_t>(std::max<ssize_t>(taken, 0)));
    accepted += content;
    const std::size_t of_head = std::min(content, head.size());
    head = head.subspan(of_head);
    body = body.subspan(content - of_head);
    if (taken < static_cast<ssize_t>(first.size() + second.size())) break;
  }
  flush_call();  // what had to wait for the end of a frame
  if (accepted > 0 || head.size() + body.size() == 0) return static_cast<ssize_t>(accepted);
  errno = problem;
  return -1;
}

// With errno where something is left. A connection that is broken leaves nothing: its end shows when it is read.
bool Channel::flush_call() {
  while (!call_->unsent().empty()) {
    const ssize_t taken = send_bytes({}, call_->unsent());
    if (taken < 0 && is_transient(errno)) return false;
    call_->sent(taken < 0 ? call_->unsent().size() : static_cast<std::size_t>(taken));
  }
  return true;
}

// Takes what has arrived, content too, to hear of leave to send more. Whether that may still come; else with errno.
bool Channel::listen() {
  for (std::size_t got = 0, wanted = 0; got == wanted;) {
    call_->put_aside();
    if (call_->broken()) {
      errno = EPROTO;
      return false;
    }
    const Http2Call::Room room = call_->room({});
    const ssize_t bytes = recv_bytes({}, room.words);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (bytes == 0) errno = EPIPE;
    if (bytes <= 0) return false;
    got = static_cast<std::size_t>(bytes);
    wanted = room.words.size();
    call_->arrived(got);
  }
  call_->put_aside();
  return true;
}

// Leaves nothing unread that it had room for: nobody else knows of what lies here.
ssize_t Channel::recv_in_call(Bytes into) {
  std::size_t given = 0;
  int problem = 0;
  for (bool more = true;;) {
    given += call_->take(into.subspan(given));
    if (call_->broken()) problem = EPROTO;
    if (given == into.size() || call_->broken() || call_->ended()) break;
    if (!more) {
      problem = EAGAIN;
      break;
    }
    const Http2Call::Room room = call_->room(into.subspan(given));
    const ssize_t got = recv_bytes(room.content, room.words);
    problem = got < 0 ? errno : 0;
    if (got <= 0) break;
    given += call_->arrived(static_cast<std::size_t>(got));
    more = static_cast<std::size_t>(got) == room.content.size() + room.words.size();
  }
  flush_call();  // what it has to answer
  errno = problem;
  return given == 0 && problem != 0 ? -1 : static_cast<ssize_t>(given);
}

ssize_t Channel::send_bytes(ConstBytes head, ConstBytes body) {
  if (tls_) return tls_->send(head, body);
  const Parts parts(head, body);
  return sendmsg(socket_->get(), &parts.message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t Channel::recv_bytes(Bytes first, Bytes second) {
  if (!tls_ && !first.empty() && !second.empty()) {
    Parts parts(first, second);
    return recvmsg(socket_->get(), &parts.message, MSG_DONTWAIT);
  }
  if (!tls_) {
    const Bytes into = first.empty() ? second : first;
    return ::recv(socket_->get(), into.data(), into.size(), MSG_DONTWAIT);
  }
  if (first.empty()) return tls_->recv(second);
  const ssize_t got = tls_->recv(first);
  if (got < static_cast<ssize_t>(first.size()) || second.empty()) return got;
  const ssize_t more = tls_->recv(second);
  return got + std::max<ssize_t>(more, 0);
}

}  // namespace ranvier::transport
