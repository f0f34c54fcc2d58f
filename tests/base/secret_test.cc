#include "base/secret.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

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

TEST(Secret, NothingButItsDigitsIsTaken) {
  std::array<std::byte, 2> parsed{};
  EXPECT_TRUE(parse_hex("00fF", parsed));
  EXPECT_EQ(parsed[1], std::byte{0xFF});
  for (const char* const text : {"", "00f", "00ff0", "00fg", "0x00", "-100", " 0ff", "00 f", "+0ff"})
    EXPECT_FALSE(parse_hex(text, parsed)) << text;
}

}  // namespace
}  // namespace ranvier
