#include "base/secret.h"

#include <gtest/gtest.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>

namespace {

bool kernel_counts = false;  // instead of giving random bytes: three at a time, and a signal comes before each of them
std::uint8_t counted = 0;
int kernel_calls = 0;

}  // namespace

// In front of the C library's.
extern "C" ssize_t getrandom(void* into, std::size_t bytes, unsigned flags) {
  if (!kernel_counts) return syscall(SYS_getrandom, into, bytes, flags);
  if (++kernel_calls % 2 == 1) {
    errno = EINTR;
    return -1;
  }
  bytes = std::min<std::size_t>(bytes, 3);
  for (std::size_t i = 0; i < bytes; ++i) static_cast<std::uint8_t*>(into)[i] = ++counted;
  return static_cast<ssize_t>(bytes);
}

namespace ranvier {
namespace {

using Secret = std::array<std::byte, 16>;

TEST(Secret, ComesBackFromItsDigits) {
  std::set<std::string> all;
  for (int round = 0; round < 100; ++round) {
    Secret secret, parsed{};
    fill_with_random(secret);
    const std::string digits = hex(secret);
    EXPECT_EQ(digits.size(), 2 * secret.size());
    EXPECT_TRUE(parse_hex(digits, parsed));
    EXPECT_EQ(parsed, secret);
    all.insert(digits);
  }
  EXPECT_EQ(all.size(), 100U);
}

TEST(Secret, IsOfTheKernelsGeneratorAndAllOfIt) {
  std::array<std::byte, 8> secret{};
  kernel_counts = true;
  fill_with_random(secret);
  kernel_counts = false;
  EXPECT_EQ(hex(secret), "0102030405060708");
}

TEST(Secret, NothingButItsDigitsIsTaken) {
  std::array<std::byte, 2> parsed{};
  EXPECT_TRUE(parse_hex("00fF", parsed));
  EXPECT_EQ(parsed[1], std::byte{0xFF});
  for (const char* const text : {"", "00f", "00ff0", "00fg", "0x00", "-100", " 0ff", "00 f", "+0ff"})
    EXPECT_FALSE(parse_hex(text, parsed)) << text;
}

}  // namespace
}  // namespace ranvier
