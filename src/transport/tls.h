// TLS 1.3 on sockets that never block: its handshake by OpenSSL, its records by tls_records.h.
//
// A record is sealed whole, and the kernel may take a part of it. Here the session owns what the kernel has not taken
// yet, so that a caller's bytes are free as soon as they were accepted, as with a plain socket's buffer.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/socket.h"
#include "ranvier/security.h"
#include "ranvier/types.h"
#include "transport/tls_records.h"

struct ssl_ctx_st;
struct ssl_st;

namespace ranvier::transport {

// Memory for records on their way, lent for as long as some wait. The buffer that came back last is lent first, as in
// receive_buffers.h, so that what is sealed and opened stays in the core's cache.
class TlsBuffers {
 public:
  static constexpr std::size_t bytes = 9 * most_tls_record;

  using Buffer = std::unique_ptr<std::byte[]>;
  Buffer take();
  void give(Buffer);

 private:
  std::mutex mutex_;
  std::vector<Buffer> idle_;
};

// What the ranks of one job prove to one another: that they know a key, or hold a certificate of one authority.
class TlsContext {
 public:
  // `token`: that of the job, which keeps the sessions of two jobs of one key apart. Throws Error{config} naming the
  // file that does not do. `protocol`: of what is said inside, such as "h2", for whoever looks at connections; RFC
  // 7301. Where it is named, certificates have to name the host "ranvier", and a dialler asks for it (RFC
  // 6066, 3).
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
  mutable TlsBuffers buffers_;
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
  // Of what was received from the socket, what recv() has not given yet, and what encloses it.
  std::size_t held() const { return arrived_.size() + opened_.size(); }
  // Hands the kernel what waits here; whether nothing is left.
  bool flush();
  bool flushed() const { return wire_.sealed.size() == 0; }

  // After so many records this side changes its key. RFC 8446, 5.5: AES-GCM is safe for 2^24.5 full records under one
  // key; less than a quarter of them.
  static constexpr std::uint64_t ordinary_records_a_key = std::uint64_t{1} << 22;
  void change_key_after(std::uint64_t records) { records_a_key_ = records; }

 private:
  friend class TlsContext;
  struct Handshake;  // between OpenSSL and the wire
  // What the two sides seal with once it is over.
  struct Secrets {
    std::optional<Secret> dialler, guest;
  };
  // [begin, end) of the memory, which is held while there is any.
  struct Held {
    TlsBuffers::Buffer memory;
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t size() const { return end - begin; }
    Bytes bytes() const { return {memory.get() + begin, size()}; }
    Bytes room(TlsBuffers&);
    void let_go(TlsBuffers&);
  };
  struct Wire {
    const Fd& socket;
    TlsBuffers& buffers;
    Held sealed = {};         // what the kernel has not taken
    std::size_t may_receive;  // before the other end has proved who it is
    bool wants_too_much = false;
    bool ended = false;
  };

  TlsProgress fail_handshake(std::string problem);
  bool begin_records();
  void forget_handshake();
  void write(TlsContent type, ConstBytes head, ConstBytes body);
  bool pull();
  std::size_t open(std::size_t record, Bytes into);
  void hear(TlsContent type, ConstBytes content);
  void refuse(int alert, std::string problem);

  const std::shared_ptr<const TlsContext> context_;
  const TlsRole role_;
  Wire wire_;
  Secrets secrets_;
  ssl_st* ssl_;                      // of the handshake; null since the first new key, for it knows those before
  std::optional<TlsWriter> writer_;  // from the end of the handshake on, as the reader
  std::optional<TlsReader> reader_;
  std::uint64_t records_a_key_ = ordinary_records_a_key;
  bool new_key_is_due_ = false;  // the other end asks for one
  Held arrived_;
  ConstBytes opened_;          // what is left of a record that was opened in place
  std::optional<int> ended_;   // what recv() ends with from now on: an errno, or 0
  bool has_answered_ = false;  // something, while it shook hands
  int broken_ = 0;             // the errno that send() ends with
  std::string problem_;
};

}  // namespace ranvier::transport
