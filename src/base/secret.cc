#include "base/secret.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <random>

namespace ranvier {

void fill_with_random(Bytes into) {
  std::random_device random;
  for (std::byte& byte : into) byte = static_cast<std::byte>(random());
}

std::string hex(ConstBytes bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return text;
}

bool parse_hex(std::string_view digits, Bytes into) {
  if (digits.size() != 2 * into.size()) return false;
  for (std::byte& byte : into) {
    std::uint8_t value = 0;
    const auto [rest, problem] = std::from_chars(digits.data(), digits.data() + 2, value, 16);
    if (problem != std::errc{} || rest != digits.data() + 2) return false;
    byte = std::byte{value};
    digits.remove_prefix(2);
  }
  return true;
}

}  // namespace ranvier
