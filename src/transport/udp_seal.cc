#include "transport/udp_seal.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "ranvier/error.h"
#include "transport/udp_socket.h"

namespace ranvier::transport {
namespace {

constexpr std::size_t clear_bytes = sizeof(PacketHeader);
constexpr std::size_t key_bytes = 16;
constexpr std::size_t most_datagram = 64 << 10;
using Digest = std::array<unsigned char, 32>;

unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }

void demand(bool done, std::string_view what) {
  if (!done) throw Error(ErrorKind::internal, fmt::format("OpenSSL cannot {}; please report this", what));
}

// One block of RFC 5869's expand step.
Digest expanded(const UdpSecret& secret, std::string_view label) {
  std::array<unsigned char, 32> info{};
  std::copy(label.begin(), label.end(), info.begin());
  info[label.size()] = 1;  // the block's number
  Digest digest;
  unsigned length = 0;
  demand(HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), info.data(), label.size() + 1,
              digest.data(), &length) != nullptr,
         "derive a key");
  return digest;
}

std::array<unsigned char, 12> nonce(const std::array<unsigned char, 12>& iv, std::uint64_t number) {
  auto result = iv;
  for (std::size_t i = 0; i < sizeof number; ++i) result[4 + i] ^= static_cast<unsigned char>(number >> (8 * (7 - i)));
  return result;
}

}  // namespace

UdpSecrets udp_secrets(const TlsSession& session, TlsRole own) {
  std::array<UdpSecret, 2> both;  // what the dialler seals with, and its guest
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

void UdpSeal::Free::operator()(evp_cipher_ctx_st* context) const { EVP_CIPHER_CTX_free(context); }

UdpSeal::Schedule::~Schedule() { OPENSSL_cleanse(secret_.data(), secret_.size()); }

void UdpSeal::Schedule::next(Key& key) {
  Digest secret = expanded(secret_, "ranvier udp key");
  const Digest iv = expanded(secret_, "ranvier udp iv");
  std::copy_n(iv.begin(), key.iv.size(), key.iv.begin());
  if (!key.context) key.context.reset(EVP_CIPHER_CTX_new());
  static_assert(key_bytes <= sizeof secret);
  demand(key.context && EVP_CipherInit_ex(key.context.get(), EVP_aes_128_gcm(), nullptr, secret.data(), nullptr,
                                          encrypts_ ? 1 : 0) == 1,
         "begin AES-128-GCM");
  secret = expanded(secret_, "ranvier udp next");
  std::memcpy(secret_.data(), secret.data(), secret.size());
  OPENSSL_cleanse(secret.data(), secret.size());
}

UdpSeal::UdpSeal(const UdpSecrets& secrets, std::uint64_t datagrams_a_key)
    : datagrams_a_key_(datagrams_a_key), sending_(secrets.sending, true), receiving_(secrets.receiving, false) {
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
  EVP_CIPHER_CTX* const context = sending_key_.context.get();
  std::size_t size = 0;
  const auto add = [&](std::byte* out, ConstBytes in) {
    int written = 0;
    const bool done = EVP_EncryptUpdate(context, out == nullptr ? nullptr : raw(out), &written, raw(in.data()),
                                        static_cast<int>(in.size())) == 1;
    if (out != nullptr) size += static_cast<std::size_t>(written);
    return done;
  };
  const ConstBytes head(packet.head);
  int last = 0;
  demand(
      EVP_EncryptInit_ex(context, nullptr, nullptr, nullptr, nonce(sending_key_.iv, number).data()) == 1 &&
          add(nullptr, head.first(clear_bytes)) &&
          (packet.head_bytes == clear_bytes || add(into, head.subspan(clear_bytes, packet.head_bytes - clear_bytes))) &&
          (packet.payload.empty() || add(into + size, packet.payload)) &&
          EVP_EncryptFinal_ex(context, raw(into + size), &last) == 1 &&
          EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, bytes, into + size) == 1,
      "encrypt");
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

bool UdpSeal::decrypt(const Key& key, std::uint64_t number, ConstBytes datagram, std::byte* into) {
  EVP_CIPHER_CTX* const context = key.context.get();
  const ConstBytes ciphertext = datagram.subspan(clear_bytes, datagram.size() - clear_bytes - bytes);
  std::array<std::byte, bytes> tag;
  std::memcpy(tag.data(), datagram.last(bytes).data(), bytes);
  int size = 0, last = 0;
  return EVP_DecryptInit_ex(context, nullptr, nullptr, nullptr, nonce(key.iv, number).data()) == 1 &&
         EVP_DecryptUpdate(context, nullptr, &size, raw(datagram.data()), static_cast<int>(clear_bytes)) == 1 &&
         (ciphertext.empty() || EVP_DecryptUpdate(context, raw(into), &size, raw(ciphertext.data()),
                                                  static_cast<int>(ciphertext.size())) == 1) &&
         EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, bytes, tag.data()) == 1 &&
         EVP_DecryptFinal_ex(context, raw(into + ciphertext.size()), &last) == 1;
}

}  // namespace ranvier::transport
