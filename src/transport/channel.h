// A connected socket that never blocks, plain, inside TLS or as a call of gRPC: the calls are those of a plain one.
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "base/socket.h"
#include "transport/http2_call.h"
#include "transport/tls.h"

namespace ranvier::transport {

// Of send(2): the kernel may take it later.
inline bool is_transient(int problem) {
  return problem == EAGAIN || problem == EINTR || problem == ENOBUFS || problem == ENOMEM;
}

class Channel {
 public:
  Channel() = default;
  explicit Channel(Fd socket) : socket_(std::make_unique<Fd>(std::move(socket))) {}
  // From now on inside TLS; secure() has to say that it is done before anything is sent or received.
  void begin_tls(std::shared_ptr<const TlsContext> context, TlsRole role) {
    tls_ = std::make_unique<TlsSession>(std::move(context), *socket_, role);
  }
  // From now on, inside TLS where that has begun, what is sent and received is the content of a call of gRPC.
  void begin_call(CallRole role) { call_ = std::make_unique<Http2Call>(role, tls_ != nullptr); }
  TlsProgress secure() { return tls_ ? tls_->handshake() : TlsProgress::done; }
  TlsSession* tls() { return tls_.get(); }
  const TlsSession* tls() const { return tls_.get(); }

  const Fd& socket() const { return *socket_; }
  explicit operator bool() const { return socket_ != nullptr && *socket_; }
  void close() {
    call_.reset();
    tls_.reset();
    socket_.reset();
  }

  // As sendmsg(2) and recv(2), without blocking and without signals.
  ssize_t send(ConstBytes head, ConstBytes body);
  ssize_t recv(Bytes into);
  // Hands the kernel what was taken and waits here; whether nothing is left. A plain socket leaves nothing here.
  bool flush() { return (!call_ || flush_call()) && (!tls_ || tls_->flush()); }
  bool flushed() const { return (!call_ || call_->unsent().empty()) && (!tls_ || tls_->flushed()); }
  // Received from the socket and not given to the caller yet: what encloses it is counted, too.
  std::size_t held() const { return (tls_ ? tls_->held() : 0) + (call_ ? call_->held() : 0); }
  // Once all has been flushed: nothing more will be sent. The other side finds the end behind it.
  void end_sending();
  // Whether the last send() took no more since the other side of a call lets it send no more: not room in the socket
  // will change that but what arrives there.
  bool awaits_leave() const { return awaits_leave_; }

 private:
  ssize_t send_in_call(ConstBytes head, ConstBytes body);
  ssize_t recv_in_call(Bytes into);
  bool flush_call();
  bool listen();
  // Beneath the call.
  ssize_t send_bytes(ConstBytes head, ConstBytes body);
  ssize_t recv_bytes(Bytes first, Bytes second);

  std::unique_ptr<Fd> socket_;  // stays where it is while a session points to it
  std::unique_ptr<TlsSession> tls_;
  std::unique_ptr<Http2Call> call_;
  bool awaits_leave_ = false;
};

}  // namespace ranvier::transport
