#include "transport/channel.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>

namespace ranvier::transport {

ssize_t Channel::send(ConstBytes head, ConstBytes body) {
  if (tls_) return tls_->send(head, body);
  // The kernel only reads what a sendmsg points at, whatever iovec says.
  std::array<iovec, 2> parts{iovec{const_cast<std::byte*>(head.data()), head.size()},
                             iovec{const_cast<std::byte*>(body.data()), body.size()}};
  msghdr message{};
  message.msg_iov = parts.data() + (head.empty() ? 1 : 0);
  message.msg_iovlen = head.empty() ? 1 : 2;
  return sendmsg(socket_->get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t Channel::recv(Bytes into) {
  if (tls_) return tls_->recv(into);
  return ::recv(socket_->get(), into.data(), into.size(), MSG_DONTWAIT);
}

}  // namespace ranvier::transport
