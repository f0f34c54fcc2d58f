// TLS 1.3 by OpenSSL, on sockets that never block.
//
// A record is encrypted whole, and the kernel may take a part of it. Here the session owns what the kernel has not
// taken yet, so that a caller's bytes are free as soon as they were accepted, as with a plain socket's buffer.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/socket.h"
#include "ranvier/security.h"
#include "ranvier/types.h"

struct ssl_ctx_st;
struct ssl_st;

namespace ranvier::transport {

// What the ranks of one job prove to one another: that they know a key, or hold a certificate of one authority.
class TlsContext {
 public:
  // `token`: that of the job, which keeps the sessions of two jobs of one key apart. Throws Error{config} naming the
  // file that does not do. `protocol`: of what is said inside, such as "h2", for whoever looks at connections; RFC
  // 7301.
  TlsContext(const SecurityOptions&, ConstBytes token, std::string_view protocol = {});
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  // That are read of a stranger.
  std::size_t most_unproved_bytes() const { return most_unproved_bytes_; }

 private:
  friend class TlsSession;

  std::unique_ptr<ssl_ctx_st, void (*)(ssl_ctx_st*)> context_;
  std::vector<unsigned char> shared_key_;  // empty with certificates
  std::vector<unsigned char> protocols_;   // as TLS has them; empty where none is named
  std::size_t most_unproved_bytes_;
};

enum class TlsRole { dialler, guest };
enum class TlsProgress { pending, done, failed };

class TlsSession {
 public:
  // `socket` outlives the session.
  TlsSession(std::shared_ptr<const TlsContext> context, const Fd& socket, TlsRole role);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Goes on as far as what has arrived allows. Nothing behind the handshake is read.
  TlsProgress handshake();
  // Fills `into` with what only the two ends of this session know, after its handshake (RFC 8446, 7.5).
  void export_secret(std::string_view label, Bytes into) const;
  // Why the handshake failed, or TLS after it: a peer may say only then that it takes no proof of this side.
  const std::string& problem() const { return problem_; }

  // As send(2) and recv(2) would: how many bytes were taken or given; -1 with errno, EAGAIN if it cannot be now and
  // EBADMSG if a record was forged or broken; 0 at the end. Bytes taken may wait here until flush(). recv() leaves
  // nothing unread that it had room for.
  ssize_t send(ConstBytes head, ConstBytes body);
  ssize_t recv(Bytes into);
  // Hands the kernel what waits here; whether nothing is left.
  bool flush();
  bool flushed() const { return unsent_begin_ == wire_.unsent.size(); }

  // After so many bytes this side changes its key. RFC 8446, 5.5: AES-GCM is safe for 2^24.5 full records under one
  // key; a quarter of that.
  static constexpr std::uint64_t ordinary_bytes_a_key = std::uint64_t{96} << 30;
  void change_key_after(std::uint64_t bytes) { bytes_a_key_ = bytes; }

 private:
  struct Records;  // between OpenSSL and the wire
  // What is encrypted.
  struct Wire {
    const Fd& socket;
    std::vector<std::byte> unsent = {};
    static constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();
    std::size_t may_receive = unlimited;  // before the other end has proved who it is
    bool wants_too_much = false;
    bool ended = false;
  };

  std::size_t encrypt(ConstBytes data);
  ssize_t failed_with(int error);

  const std::shared_ptr<const TlsContext> context_;
  Wire wire_;
  ssl_st* ssl_;
  std::size_t unsent_begin_ = 0;     // what is before it the kernel has taken
  std::vector<std::byte> together_;  // a head and what follows it, for one record
  std::uint64_t bytes_a_key_ = ordinary_bytes_a_key;
  std::uint64_t bytes_under_key_ = 0;
  int broken_ = 0;  // the errno that all calls end with from now on
  std::string problem_;
};

}  // namespace ranvier::transport
