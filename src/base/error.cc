#include "ranvier/error.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>

namespace ranvier {
namespace {

// Of the text's next character, how many bytes of UTF-8 it has; 0 where it is none, or one that steers a terminal (C0
// but for line breaks and tabs, delete, C1: ECMA-48).
std::size_t bytes_shown(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return (byte(0) >= 0x20 && byte(0) != 0x7f) || text[0] == '\n' || text[0] == '\t' ? 1 : 0;
  const std::size_t bytes = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < bytes) return 0;
  for (std::size_t i = 1; i < bytes; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  return byte(0) == 0xc2 && byte(1) < 0xa0 ? 0 : bytes;
}

std::string harmless(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t bytes = bytes_shown(text);
    if (bytes == 0) fmt::format_to(std::back_inserter(shown), "\\x{:02x}", static_cast<unsigned char>(text[0]));
    shown += text.substr(0, bytes);
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return shown;
}

}  // namespace

Error::Error(ErrorKind kind, const std::string& sentence, Rank culprit)
    : std::runtime_error(harmless(sentence)), kind_(kind), culprit_(culprit) {}

Error Error::with_flight_record(std::string_view record) const {
  Error copy = *this;
  copy.flight_record_ = harmless(record);
  return copy;
}

}  // namespace ranvier
