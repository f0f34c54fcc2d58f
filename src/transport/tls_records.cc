#include "transport/tls_records.h"

#include <openssl/crypto.h>

#include <array>
#include <span>
#include <string_view>

namespace ranvier::transport {
namespace {

// HKDF-Expand-Label without context (RFC 8446, 7.1).
Secret labelled(const Secret& secret, std::string_view label, std::size_t bytes) {
  constexpr std::string_view scheme = "tls13 ";
  std::array<std::byte, 32> info{};
  std::size_t size = 0;
  const auto add = [&](auto value) { info[size++] = static_cast<std::byte>(value); };
  add(bytes >> 8);
  add(bytes);
  add(scheme.size() + label.size());
  for (const std::string_view part : {scheme, label})
    for (const char letter : part) add(letter);
  add(0);
  return expanded(secret, ConstBytes(info).first(size));
}

}  // namespace

std::optional<std::size_t> tls_record_size(ConstBytes arrived) {
  if (arrived.size() < tls_header) return 0;
  const std::size_t size =
      tls_header + (std::to_integer<std::size_t>(arrived[3]) << 8 | std::to_integer<std::size_t>(arrived[4]));
  if (arrived[0] != static_cast<std::byte>(TlsContent::data) || size < tls_overhead || size > most_tls_record)
    return std::nullopt;
  return size;
}

TlsKeys::TlsKeys(AesGcm::Task task, const Secret& secret) : task_(task), secret_(secret) { set(); }

TlsKeys::~TlsKeys() { OPENSSL_cleanse(secret_.data(), secret_.size()); }

void TlsKeys::set() {
  Secret key = labelled(secret_, "key", AesGcm::key_bytes);
  const Secret iv = labelled(secret_, "iv", AesGcm::iv_bytes);
  key_.set_key(task_, std::span(key).first<AesGcm::key_bytes>(), std::span(iv).first<AesGcm::iv_bytes>());
  OPENSSL_cleanse(key.data(), key.size());
  number_ = 0;
}

void TlsKeys::next() {
  auto fresh = labelled(secret_, "traffic upd", secret_.size());
  secret_ = fresh;
  OPENSSL_cleanse(fresh.data(), fresh.size());
  set();
}

std::size_t TlsWriter::write(TlsContent type, ConstBytes head, ConstBytes body, std::byte* into) {
  const std::size_t content = head.size() + body.size();
  const std::size_t follows = content + 1 + AesGcm::tag_bytes;
  into[0] = static_cast<std::byte>(TlsContent::data);
  into[1] = into[2] = std::byte{3};
  into[3] = static_cast<std::byte>(follows >> 8);
  into[4] = static_cast<std::byte>(follows);
  std::byte* place = into + tls_header;
  const auto inner_type = static_cast<std::byte>(type);
  key_.begin(number_++, {into, tls_header});
  key_.add(head, place);
  key_.add(body, place + head.size());
  key_.add({&inner_type, 1}, place + content);
  key_.end_sealing(place + content + 1);
  return tls_header + follows;
}

std::optional<TlsReader::Content> TlsReader::read(ConstBytes record, std::byte* into) {
  std::size_t content = record.size() - tls_overhead;
  std::byte type{};
  key_.begin(number_++, record.first(tls_header));
  key_.add(record.subspan(tls_header, content), into);
  key_.add(record.subspan(tls_header + content, 1), &type);
  if (!key_.end_opening(record.last(AesGcm::tag_bytes))) return std::nullopt;
  while (type == std::byte{0} && content > 0) type = into[--content];  // padding
  return Content{static_cast<TlsContent>(type), content};
}

}  // namespace ranvier::transport
