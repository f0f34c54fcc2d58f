#include "ranvier/text.h"

#include <gmock/gmock.h>

#include <array>

namespace ranvier {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::array<std::string_view, 4> transports{"tcp", "shm", "udp", "auto"};

TEST(TextTest, NumbersAreWholeWordsThatFit) {
  EXPECT_EQ(parse_number<int>("-12"), -12);
  EXPECT_EQ(parse_number<double>("2.5e3"), 2500.0);
  EXPECT_EQ(parse_number<std::uint8_t>("255"), 255);
  for (const auto* word : {"", " 1", "1 ", "+1", "1x", "0x10", "99999999999"})
    EXPECT_EQ(parse_number<int>(word), std::nullopt);
  for (const auto* word : {"nan", "inf", "-inf", "1e999", "1,5"}) EXPECT_EQ(parse_number<double>(word), std::nullopt);
  EXPECT_EQ(parse_number<std::uint8_t>("256"), std::nullopt);
  EXPECT_EQ(parse_number<unsigned>("-1"), std::nullopt);
}

TEST(Nearest, IsTheCandidateItselfWhereItIsSpelledRight) {
  for (const auto name : transports) EXPECT_EQ(nearest(name, transports), name);
}

TEST(Nearest, FindsASwappedMissingOrExtraLetter) {
  constexpr std::array<std::string_view, 3> algorithms{"ring", "halving_doubling", "one_round"};
  EXPECT_EQ(nearest("rign", algorithms), "ring");
  EXPECT_EQ(nearest("rin", algorithms), "ring");
  EXPECT_EQ(nearest("ringg", algorithms), "ring");
  EXPECT_EQ(nearest("halving-doubling", algorithms), "halving_doubling");
  EXPECT_EQ(nearest("RING", algorithms), "ring");
  EXPECT_EQ(nearest("rin", std::array<std::string_view, 1>{"RING"}), "RING");
}

TEST(Nearest, IsEmptyWhereNothingIsNear) {
  EXPECT_EQ(nearest("infiniband", transports), "");
  EXPECT_EQ(nearest("fp8", std::array<std::string_view, 3>{"f32", "f16", "i8"}), "");
  EXPECT_EQ(nearest("nccl", std::array<std::string_view, 3>{"mpi", "gloo", "all"}), "");
  EXPECT_EQ(nearest("tcp", {}), "");
}

TEST(UnknownName, NamesTheWordTheNearestAndTheWholeList) {
  const std::string sentence = unknown_name("transport", "tpc", transports);
  EXPECT_THAT(sentence, AllOf(HasSubstr("unknown transport 'tpc'"), HasSubstr("did you mean 'tcp'?"),
                              HasSubstr("tcp, shm, udp, auto")));
  EXPECT_THAT(unknown_name("transport", "infiniband", transports), Not(HasSubstr("did you mean")));
  EXPECT_EQ(unknown_name("transport", "udp=0.01", transports), "unknown transport 'udp=0.01'; write 'udp:0.01'");
  EXPECT_THAT(unknown_name("transport", "upd=0.01", transports), HasSubstr("did you mean 'udp'"));
}

TEST(ParseBytes, CountsInPowersOf1024) {
  EXPECT_EQ(parse_bytes("0"), 0U);
  EXPECT_EQ(parse_bytes("64"), 64U);
  EXPECT_EQ(parse_bytes("64B"), 64U);
  EXPECT_EQ(parse_bytes("4K"), 4096U);
  EXPECT_EQ(parse_bytes("4KiB"), 4096U);
  EXPECT_EQ(parse_bytes("1.5K"), 1536U);
  EXPECT_EQ(parse_bytes("16M"), 16U << 20);
  EXPECT_EQ(parse_bytes("1GB"), 1U << 30);
}

TEST(ParseBytes, RefusesWhatIsNotASize) {
  for (const auto text : {"", "K", "-1", "1.5", "0.3K", "4 K", "4Q", "4KK", "nan", "inf", "1e30", "0x10", "4Kbit"})
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
}

TEST(ParseRate, CountsInPowersOf1000AndEightBitsAByte) {
  EXPECT_EQ(parse_rate("200Mbit"), 25e6);
  EXPECT_EQ(parse_rate("1Gbit"), 125e6);
  EXPECT_EQ(parse_rate("100kbit"), 12'500);
  EXPECT_EQ(parse_rate("8bit"), 1);
  EXPECT_EQ(parse_rate("25MB"), 25e6);
  EXPECT_EQ(parse_rate("2.5Gbit"), 312.5e6);
  EXPECT_EQ(parse_rate("200Mbit/s"), 25e6);
  EXPECT_EQ(parse_rate("200Mbps"), 25e6);
  EXPECT_EQ(parse_rate("25MB/s"), 25e6);
}

TEST(ParseRate, RefusesWhatIsNotARate) {
  for (const auto text : {"", "0Mbit", "-1Mbit", "200", "Mbit", "200 Mbit", "200Mbits", "200/s", "25MB/s/s", "25MBps",
                          "nanMbit", "infGB", "1MiB"})
    EXPECT_EQ(parse_rate(text), std::nullopt) << text;
}

TEST(HumanBytes, PicksTheUnitThatLeavesAtMostFourDigits) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1024), "1 KiB");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes(64.0 * 1024 * 1024), "64 MiB");
  EXPECT_EQ(human_bytes(0x1p40), "1 TiB");
}

TEST(Ports, AreOneOrARange) {
  EXPECT_EQ(parse_ports("20000-20100"), (PortRange{20000, 20100}));
  EXPECT_EQ(parse_ports("4242"), (PortRange{4242, 4242}));
  for (const auto* const wrong : {"", "-", "0", "0-5", "9-5", "70000", "1-70000", "1-2-3", "a-b", "20000-"})
    EXPECT_FALSE(parse_ports(wrong)) << wrong;
}

}  // namespace
}  // namespace ranvier
