// What is read of the kernel's counters of packets.
#include "bench/kernel_packets.h"

#include <gtest/gtest.h>

#include "bench/world.h"

namespace ranvier::bench {
namespace {

constexpr std::string_view snmp =
    "Ip: Forwarding DefaultTTL InReceives\n"
    "Ip: 1 64 4242\n"
    "Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens InSegs OutSegs RetransSegs InErrs OutRsts InCsumErrors\n"
    "Tcp: 1 200 120000 -1 3 5000 970 30 4 2 3\n"
    "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors\n"
    "Udp: 9 0 7 9 0 0 6 0 0\n"
    "UdpLite: InDatagrams InCsumErrors\n"
    "UdpLite: 0 99\n";

TEST(KernelPackets, AreReadByTheNamesOfTheirCounters) {
  const KernelPackets found = parse_kernel_packets(snmp);
  EXPECT_EQ(found.tcp.sent, 1000) << "with those that were sent again";
  EXPECT_EQ(found.tcp.lost, 30);
  EXPECT_EQ(found.tcp.refused, 4);
  EXPECT_EQ(found.damaged_udp, 6);
}

TEST(KernelPackets, AreNoneWhereTheTextHasNone) {
  for (const std::string_view text : {std::string_view(), std::string_view("Tcp: OutSegs\n"), std::string_view("x")}) {
    EXPECT_EQ(parse_kernel_packets(text).tcp.sent, 0) << text;
    EXPECT_EQ(parse_kernel_packets(text).damaged_udp, 0) << text;
  }
}

// Every rank of a host is told all that its kernel counts.
TEST(KernelPackets, CountOnceForAllRanksOfANetwork) {
  Outcome outcome;
  Reply reply{.packets = {.sent = 1}, .kernel = {.sent = 100, .lost = 10, .refused = 3}, .network = 5};
  outcome.add(reply, 1);
  outcome.add(reply, 1);
  reply.network = 6;
  outcome.add(reply, 1);
  EXPECT_EQ(outcome.packets.sent, 203);
  EXPECT_EQ(outcome.packets.lost, 20);
  EXPECT_EQ(outcome.packets.refused, 6);
  EXPECT_EQ(outcome.networks, (std::vector<std::uint64_t>{5, 6}));
  EXPECT_EQ(counting_network(), counting_network());
  EXPECT_LT(counting_network(), std::uint64_t{1} << 53) << "exact as a double";
}

}  // namespace
}  // namespace ranvier::bench
