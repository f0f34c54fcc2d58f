// The records of a TLS 1.3 connection behind its handshake (RFC 8446, 5.2), which is OpenSSL's.
//
//     0   type        1  23, whatever is inside
//     1   version     2  0x0303
//     3   length      2  of what follows
//     5   ciphertext     of the content and one byte more, which says what it is
//         tag        16
//
// They are OpenSSL's to the byte. But its own layer copies what it sends into a buffer, encrypts it there and copies
// the record out, and what it receives it copies from one buffer to its place; that cost nearly as much as AES itself
// (docs/benchmarks.md, "TLS beside plain tcp"). Here a record is sealed from where its content lies into what is sent
// next, and opened from what has arrived into the place that it is for.
//
// The number of a record under its key is the nonce, and nobody sends it: a record that is repeated, left out or in
// another's place is opened with the wrong one and refused as a changed one is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "ranvier/types.h"
#include "transport/aes_gcm.h"

namespace ranvier::transport {

enum class TlsContent : std::uint8_t { alert = 21, handshake = 22, data = 23 };

inline constexpr std::size_t tls_header = 5;
inline constexpr std::size_t most_tls_content = 16 << 10;
// By which a record is longer than its content.
inline constexpr std::size_t tls_overhead = tls_header + 1 + AesGcm::tag_bytes;
inline constexpr std::size_t most_tls_record = most_tls_content + tls_overhead;

// Bytes of the whole record that `arrived` begins with, tls_overhead to most_tls_record. 0: more has to arrive to know
// it. Empty: it is none.
std::optional<std::size_t> tls_record_size(ConstBytes arrived);

// The keys of one direction (RFC 8446, 7.3), from the secret that its handshake ended with; next() is 7.2.
class TlsKeys {
 public:
  TlsKeys(AesGcm::Task, const Secret&);
  ~TlsKeys();
  TlsKeys(const TlsKeys&) = delete;
  TlsKeys& operator=(const TlsKeys&) = delete;

  void next();
  // Of records under the present key: that of the next one.
  std::uint64_t number() const { return number_; }

 protected:
  AesGcm key_;
  std::uint64_t number_ = 0;

 private:
  void set();

  const AesGcm::Task task_;
  Secret secret_;
};

class TlsWriter : public TlsKeys {
 public:
  explicit TlsWriter(const Secret& secret) : TlsKeys(AesGcm::Task::seal, secret) {}
  // The next record, with `head` and behind it `body`, together at most most_tls_content; returns its bytes.
  std::size_t write(TlsContent type, ConstBytes head, ConstBytes body, std::byte* into);
};

class TlsReader : public TlsKeys {
 public:
  explicit TlsReader(const Secret& secret) : TlsKeys(AesGcm::Task::open, secret) {}

  struct Content {
    TlsContent type;
    std::size_t bytes;
  };
  // Writes the content of `record`, a whole one, `into`: up to record.size() - tls_overhead bytes, the record's own if
  // need be. Empty for what is not the next record of the other end; then what was written is to be forgotten.
  std::optional<Content> read(ConstBytes record, std::byte* into);
};

}  // namespace ranvier::transport
