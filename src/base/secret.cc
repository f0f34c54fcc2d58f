#include "base/secret.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>

#include "ranvier/error.h"

namespace ranvier {

void fill_with_random(Bytes into) {
  while (!into.empty()) {
    const ssize_t got = getrandom(into.data(), into.size(), 0);
    if (got >= 0)
      into = into.subspan(static_cast<std::size_t>(got));
    else if (errno != EINTR)
      throw Error(ErrorKind::config, fmt::format("the kernel gives no random bytes: {}", std::strerror(errno)));
  }
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
