// Datagrams between two ranks that nobody else can read, change, repeat or make up: AES-128-GCM with keys from a TLS
// handshake of the two. Built as QUIC protects its packets (M. Thomson, S. Turner, "Using TLS to Secure QUIC", RFC
// 9001, 2021), without its bits for headers and phases, which a job that both ends run from the start to the end does
// not need.
//
//     0   number       8  of this datagram in its direction, from 1; a plain datagram shows the receiver's key here
//     8   header      32  the rest of it, see udp_packet.h: everybody can read it, nobody can change it
//     40  ciphertext      of what follows the header
//         tag         16
//
// Every datagram has a number of its own, hellos and acknowledgements too, so that no nonce (the number within the
// key's IV, RFC 9001, 5.3) is ever used twice. So many of them share a key: which one it is follows from the number,
// and nothing has to be announced. The next key comes from the present one and not the other way round (RFC 9001, 6.1).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "ranvier/types.h"
#include "transport/aes_gcm.h"
#include "transport/replay_window.h"
#include "transport/tls.h"
#include "transport/udp_connection.h"

namespace ranvier::transport {

struct UdpSecrets {
  Secret sending{};
  Secret receiving{};
};

// What the two ends of a TLS session have in common and nobody else knows (RFC 8446, 7.5).
UdpSecrets udp_secrets(const TlsSession&, TlsRole own);

class UdpSeal {
 public:
  static constexpr std::size_t bytes = AesGcm::tag_bytes;  // that a sealed datagram is longer by
  // RFC 9001, B.1: 2^23 datagrams of up to 64 KiB are safe under one key of AES-GCM; half of them.
  static constexpr std::uint64_t ordinary_datagrams_a_key = std::uint64_t{1} << 22;

  explicit UdpSeal(const UdpSecrets&, std::uint64_t datagrams_a_key = ordinary_datagrams_a_key);

  // What a batch of packets is encrypted into, and one that has arrived is decrypted into; of all peers.
  class Buffers {
   public:
    Buffers();

   private:
    friend class UdpSeal;
    std::unique_ptr<std::byte[]> sealed_, opened_;
  };

  // The packets as they leave; their payloads are memory of the buffers until the next call.
  void close(std::span<OutgoingPacket> packets, Buffers&);
  // The datagram as parse_packet() takes it, showing `key`, in memory of the buffers until the next call; empty for
  // one that the other end did not seal, or that was here before. Then nothing has changed but the count.
  ConstBytes open(ConstBytes datagram, std::uint64_t key, Buffers&);

  std::uint64_t refused() const { return refused_; }

 private:
  // The keys of one direction, one after the other.
  class Schedule {
   public:
    Schedule(const Secret& secret, AesGcm::Task task) : secret_(secret), task_(task) {}
    ~Schedule();
    void next(AesGcm&);

   private:
    Secret secret_;
    const AesGcm::Task task_;
  };

  std::size_t close(OutgoingPacket&, std::byte* into);
  bool decrypt(AesGcm&, std::uint64_t number, ConstBytes datagram, std::byte* into);

  const std::uint64_t datagrams_a_key_;

  Schedule sending_;
  AesGcm sending_key_;
  std::uint64_t sending_generation_ = 0;
  std::uint64_t sent_ = 0;  // numbers

  Schedule receiving_;
  // By generation: the newest that has arrived, one before it for what is late, one after it.
  std::array<AesGcm, 3> receiving_keys_;
  std::uint64_t receiving_generation_ = 0;
  ReplayWindow window_;
  std::uint64_t refused_ = 0;
};

}  // namespace ranvier::transport
