// What is written comes back; what is not a packet is refused, whatever it is.
#include "transport/udp_packet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "transport/packet_size.h"
#include "transport/round_trip.h"

namespace ranvier::transport {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t key = 0x1234'5678'9abc'def0;

std::vector<std::byte> some_packet(std::size_t ranges, std::size_t payload) {
  PacketHeader header{.key = key, .number = 77, .offset = 1'000'000'000'000, .from = 3, .behind = 12};
  header.payload = static_cast<std::uint16_t>(payload);
  header.lane = 2;
  header.follows = 1;
  header.ranges = static_cast<std::uint8_t>(ranges);
  Acknowledgement acknowledgement;
  acknowledgement.count = ranges;
  acknowledgement.delay_us = 99;
  acknowledgement.asked_below = 12;
  acknowledgement.arrived_us = 4'000'000'000;
  acknowledgement.line_rate = 12'500;
  acknowledgement.senders = 3;
  acknowledgement.limits.fill(1 << 20);
  for (std::size_t i = 0; i < ranges; ++i) acknowledgement.ranges[i] = {1000 - 10 * i, 1005 - 10 * i};
  std::array<std::byte, most_packet_head> head;
  const std::size_t bytes = write_packet_head(header, acknowledgement, head);
  std::vector<std::byte> datagram(head.begin(), head.begin() + static_cast<std::ptrdiff_t>(bytes));
  for (std::size_t i = 0; i < payload; ++i) datagram.push_back(static_cast<std::byte>(i));
  return datagram;
}

TEST(UdpPacket, comes_back_as_it_was_written) {
  for (const std::size_t ranges : {std::size_t{0}, std::size_t{1}, std::size_t{7}, most_ack_ranges})
    for (const std::size_t payload : {0, 1, 1400, 60'000}) {
      const auto datagram = some_packet(ranges, payload);
      Packet packet;
      ASSERT_TRUE(parse_packet(datagram, key, packet));
      EXPECT_EQ(packet.header.number, 77U);
      EXPECT_EQ(packet.header.offset, 1'000'000'000'000U);
      EXPECT_EQ(packet.header.from, 3);
      EXPECT_EQ(packet.payload.size(), payload);
      if (payload > 0) {
        EXPECT_EQ(packet.payload.back(), static_cast<std::byte>(payload - 1));
      }
      EXPECT_EQ(packet.acknowledgement.count, ranges);
      if (ranges > 0) {
        EXPECT_EQ(packet.acknowledgement.ranges[ranges - 1], (NumberRange{1010 - 10 * ranges, 1015 - 10 * ranges}));
        EXPECT_EQ(packet.acknowledgement.limits[5], 1U << 20);
        EXPECT_EQ(packet.acknowledgement.delay_us, 99U);
        EXPECT_EQ(packet.acknowledgement.asked_below, 12U);
        EXPECT_EQ(packet.acknowledgement.arrived_us, 4'000'000'000U);
        EXPECT_EQ(packet.acknowledgement.line_rate, 12'500U);
        EXPECT_EQ(packet.acknowledgement.senders, 3U);
      }
    }
}

TEST(UdpPacket, cut_short_or_long_or_of_a_stranger_is_none) {
  Packet packet;
  for (const std::size_t ranges : {0, 3}) {
    auto datagram = some_packet(ranges, 100);
    for (std::size_t size = 0; size < datagram.size(); ++size)
      EXPECT_FALSE(parse_packet(std::span(datagram).first(size), key, packet)) << size;
    EXPECT_FALSE(parse_packet(datagram, key + 1, packet));
    datagram.push_back({});
    EXPECT_FALSE(parse_packet(datagram, key, packet));
  }
}

TEST(UdpPacket, that_is_nonsense_is_none) {
  const auto changed = [](std::size_t place, int value) {
    auto datagram = some_packet(3, 100);
    datagram[place] = static_cast<std::byte>(value);
    Packet packet;
    return parse_packet(datagram, key, packet);
  };
  EXPECT_TRUE(changed(36, udp_version));
  EXPECT_FALSE(changed(36, udp_version + 1));
  EXPECT_FALSE(changed(37, packet_kinds));
  EXPECT_FALSE(changed(38, lane_count));
  EXPECT_FALSE(changed(39, most_ack_ranges + 1));
  EXPECT_FALSE(changed(39, 2));
  EXPECT_FALSE(changed(28, 77)) << "it speaks of packets before the first";
  constexpr std::size_t first_range = sizeof(PacketHeader) + Acknowledgement::fixed_bytes;
  EXPECT_FALSE(changed(first_range + 9, 0)) << "a range that ends before it begins";
  EXPECT_FALSE(changed(first_range + 17, 200)) << "ranges that rise";
}

TEST(PacketSize, is_the_largest_that_gets_through) {
  for (const std::size_t link : {65'507, 8972, 1472, 1450, 1300, 1200, 600})
    for (std::size_t path = std::min<std::size_t>(link, 1200); path <= link; path += path < 1500 ? 1 : 97) {
      PacketSize size(link, false);
      EXPECT_LE(size.bytes(), path);
      int tries = 0;
      for (std::size_t tried = size.to_try(); tried > 0 && tries < 100; tried = size.to_try(), ++tries) {
        size.trying();
        EXPECT_EQ(size.to_try(), 0U) << "one at a time";
        if (tried <= path)
          size.acknowledged(tried);
        else
          size.lost();
      }
      EXPECT_LT(tries, 100);
      EXPECT_LE(size.bytes(), path);
      // The sizes that networks have are found exactly, and the link's own.
      if (path == link || path == 8972 || (path == 1472 && link > 1472)) {
        EXPECT_EQ(size.bytes(), path) << link;
      }
      const bool large = size.bytes() > PacketSize::base;
      size.large_ones_vanish();
      if (large) {
        EXPECT_EQ(size.bytes(), PacketSize::base);
      }
    }
}

TEST(RoundTrip, follows_what_it_is_told_and_never_waits_for_less) {
  RoundTrip trip;
  EXPECT_FALSE(trip.sampled());
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    const auto measured = 20ms + std::chrono::microseconds(random() % 4000);
    trip.sample(measured, std::chrono::microseconds(random() % 3000));
    EXPECT_GE(trip.least(), 20ms);
    EXPECT_GE(trip.smoothed(), trip.least());
    EXPECT_LE(trip.smoothed(), 24ms);
    EXPECT_GT(trip.timeout(3ms), trip.smoothed() + 3ms);
  }
  EXPECT_LT(trip.timeout(3ms), 40ms);
  for (int i = 0; i < 100; ++i) trip.sample(80ms, 0ms);
  EXPECT_NEAR(std::chrono::duration<double>(trip.smoothed()).count(), 0.080, 0.001);
  EXPECT_GE(trip.least(), 20ms);
}

// Else the fuzz target would have every seed dropped at its door, as happened when the version changed.
TEST(UdpPacket, seeds_of_the_fuzz_target_are_of_this_version) {
  constexpr std::uint64_t key_of_seeds = 5;
  constexpr std::size_t head_of_seeds = 3;  // the length of a datagram, two bytes, and how much time passes
  int seeds = 0;
  for (const auto& file : std::filesystem::directory_iterator(RANVIER_TEST_CORPUS "/udp_fuzz")) {
    std::ifstream stream(file.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
    ASSERT_GT(text.size(), head_of_seeds);
    const std::size_t length = static_cast<std::uint8_t>(text[0]) | std::size_t{static_cast<std::uint8_t>(text[1])}
                                                                        << 8;
    Packet packet;
    EXPECT_TRUE(parse_packet(std::as_bytes(std::span(text)).subspan(head_of_seeds, length), key_of_seeds, packet))
        << file.path() << ": run tests/fuzz/make_corpus.py";
    ++seeds;
  }
  EXPECT_GE(seeds, 6);
}

}  // namespace
}  // namespace ranvier::transport
