#include "transport/channel.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>

namespace ranvier::transport {

ssize_t Channel::send(ConstBytes head, ConstBytes body) {
  if (!call_) return send_bytes(head, body);
  if (call_->has_ended()) {
    errno = EPIPE;  // as a socket that was shut down has it
    return -1;
  }
  if (flush_call()) {
    const std::size_t taken = call_->send(head, body);
    flush_call();
    if (taken > 0 || head.size() + body.size() == 0) return static_cast<ssize_t>(taken);
    errno = EAGAIN;
  }
  return -1;
}

ssize_t Channel::recv(Bytes into) { return call_ ? recv_of_call(into) : recv_bytes(into); }

void Channel::end_sending() {
  if (!call_) return void(shutdown(socket_->get(), SHUT_WR));
  call_->end();
  flush();
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

// Leaves nothing unread that it had room for: nobody else knows of what lies here.
ssize_t Channel::recv_of_call(Bytes into) {
  ssize_t got = 1;
  std::size_t given = 0;
  int problem = 0;
  for (;;) {
    given += call_->take(into.subspan(given));
    if (call_->broken()) problem = EPROTO;
    if (given == into.size() || call_->broken() || call_->ended()) break;
    got = recv_bytes(call_->space());
    problem = got < 0 ? errno : 0;
    if (got <= 0) break;
    call_->arrived(static_cast<std::size_t>(got));
  }
  flush_call();  // what it has to answer
  errno = problem;
  return given == 0 && problem != 0 ? -1 : static_cast<ssize_t>(given);
}

ssize_t Channel::send_bytes(ConstBytes head, ConstBytes body) {
  if (tls_) return tls_->send(head, body);
  // The kernel only reads what a sendmsg points at, whatever iovec says.
  std::array<iovec, 2> parts{iovec{const_cast<std::byte*>(head.data()), head.size()},
                             iovec{const_cast<std::byte*>(body.data()), body.size()}};
  msghdr message{};
  message.msg_iov = parts.data() + (head.empty() ? 1 : 0);
  message.msg_iovlen = head.empty() ? 1 : 2;
  return sendmsg(socket_->get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t Channel::recv_bytes(Bytes into) {
  if (tls_) return tls_->recv(into);
  return ::recv(socket_->get(), into.data(), into.size(), MSG_DONTWAIT);
}

}  // namespace ranvier::transport
