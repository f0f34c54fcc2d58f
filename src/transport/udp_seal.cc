#include "transport/udp_seal.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "transport/udp_socket.h"

namespace ranvier::transport {
namespace {

constexpr std::size_t clear_bytes = sizeof(PacketHeader);
constexpr std::size_t most_datagram = 64 << 10;

Secret next_of(const Secret& secret, std::string_view label) {
  return expanded(secret, std::as_bytes(std::span(label)));
}

}  // namespace

UdpSecrets udp_secrets(const TlsSession& session, TlsRole own) {
  std::array<Secret, 2> both;  // what the dialler seals with, and its guest
  session.export_secret("EXPERIMENTAL ranvier udp", std::as_writable_bytes(std::span(both)));
  UdpSecrets secrets{both[0], both[1]};
  if (own == TlsRole::guest) std::swap(secrets.sending, secrets.receiving);
  OPENSSL_cleanse(both.data(), sizeof both);
  return secrets;
}

// Pages that nothing is written to cost nothing.
UdpSeal::Buffers::Buffers()
    : sealed_(std::make_unique_for_overwrite<std::byte[]>(UdpSocket::most_at_once * most_datagram)),
      opened_(std::make_unique_for_overwrite<std::byte[]>(most_datagram)) {}

UdpSeal::Schedule::~Schedule() { OPENSSL_cleanse(secret_.data(), secret_.size()); }

void UdpSeal::Schedule::next(AesGcm& key) {
  Secret secret = next_of(secret_, "ranvier udp key");
  const Secret iv = next_of(secret_, "ranvier udp iv");
  key.set_key(task_, std::span(secret).first<AesGcm::key_bytes>(), std::span(iv).first<AesGcm::iv_bytes>());
  secret = next_of(secret_, "ranvier udp next");
  secret_ = secret;
  OPENSSL_cleanse(secret.data(), secret.size());
}

UdpSeal::UdpSeal(const UdpSecrets& secrets, std::uint64_t datagrams_a_key)
    : datagrams_a_key_(datagrams_a_key),
      sending_(secrets.sending, AesGcm::Task::seal),
      receiving_(secrets.receiving, AesGcm::Task::open) {
  sending_.next(sending_key_);
  receiving_.next(receiving_keys_[0]);
  receiving_.next(receiving_keys_[1]);
}

void UdpSeal::close(std::span<OutgoingPacket> packets, Buffers& buffers) {
  std::byte* place = buffers.sealed_.get();
  for (OutgoingPacket& packet : packets) place += close(packet, place);
}

std::size_t UdpSeal::close(OutgoingPacket& packet, std::byte* into) {
  const std::uint64_t number = ++sent_;
  if (number / datagrams_a_key_ != sending_generation_) {
    sending_.next(sending_key_);
    ++sending_generation_;
  }
  std::memcpy(packet.head.data(), &number, sizeof number);
  const ConstBytes head(packet.head);
  const ConstBytes rest = head.subspan(clear_bytes, packet.head_bytes - clear_bytes);
  const std::size_t size = rest.size() + packet.payload.size();
  sending_key_.begin(number, head.first(clear_bytes));
  sending_key_.add(rest, into);
  sending_key_.add(packet.payload, into + rest.size());
  sending_key_.end_sealing(into + size);
  packet.head_bytes = clear_bytes;
  packet.payload = ConstBytes(into, size + bytes);
  return size + bytes;
}

ConstBytes UdpSeal::open(ConstBytes datagram, std::uint64_t key, Buffers& buffers) {
  std::uint64_t number = 0;
  const bool long_enough = datagram.size() >= clear_bytes + bytes && datagram.size() <= most_datagram;
  if (long_enough) std::memcpy(&number, datagram.data(), sizeof number);
  const std::uint64_t generation = number / datagrams_a_key_;
  std::byte* const place = buffers.opened_.get();
  if (!long_enough || generation + 1 < receiving_generation_ || generation > receiving_generation_ + 1 ||
      !window_.is_new(number) ||
      !decrypt(receiving_keys_[generation % receiving_keys_.size()], number, datagram, place + clear_bytes)) {
    ++refused_;
    return {};
  }
  window_.add(number);
  if (generation > receiving_generation_) {
    receiving_generation_ = generation;
    receiving_.next(receiving_keys_[(generation + 1) % receiving_keys_.size()]);
  }
  std::memcpy(place, &key, sizeof key);
  std::memcpy(place + sizeof key, datagram.data() + sizeof key, clear_bytes - sizeof key);
  return {place, datagram.size() - bytes};
}

bool UdpSeal::decrypt(AesGcm& key, std::uint64_t number, ConstBytes datagram, std::byte* into) {
  key.begin(number, datagram.first(clear_bytes));
  key.add(datagram.subspan(clear_bytes, datagram.size() - clear_bytes - bytes), into);
  return key.end_opening(datagram.last(bytes));
}

}  // namespace ranvier::transport
