// A connection over a path that exists only as a list: every byte arrives once and in order whatever the path does, and
// the rate follows the path and not its losses.
#include "transport/udp_connection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>

#include "support/sanitized.h"
#include "transport/udp_path.h"

namespace ranvier::transport {
namespace {

using namespace std::chrono_literals;
using support::PathOptions;
using support::UdpPath;

std::byte expected_byte(std::size_t from, Lane lane, std::size_t offset) {
  return static_cast<std::byte>(((offset + 1) * 0x9e3779b97f4a7c15 + from * 8 + lane) >> 56);
}

// Bytes from one end to the other on one lane, in pieces of random size.
struct Stream {
  std::size_t from = 0;
  Lane lane = 0;
  std::size_t bytes = 0;
  std::size_t sent = 0;
  std::size_t received = 0;
  bool intact = true;

  void move(UdpPath& path, std::mt19937& random) {
    std::array<std::byte, 70'000> memory;
    const std::size_t offered = std::min<std::size_t>(bytes - sent, 1 + random() % memory.size());
    for (std::size_t i = 0; i < offered; ++i) memory[i] = expected_byte(from, lane, sent + i);
    const std::size_t head = std::min<std::size_t>(offered, random() % 65);
    if (offered > 0)
      sent += path.end(from).try_send(lane, ConstBytes(memory).first(head),
                                      ConstBytes(memory).subspan(head, offered - head));
    const ConstBytes view = path.end(1 - from).view(lane);
    const std::size_t used = view.empty() ? 0 : 1 + random() % view.size();
    for (std::size_t i = 0; i < used; ++i) intact = intact && view[i] == expected_byte(from, lane, received + i);
    if (used > 0) path.end(1 - from).release(lane, used);
    received += used;
  }
  bool done() const { return received == bytes; }
};

std::vector<Stream> on_all_lanes(std::size_t bytes) {
  std::vector<Stream> streams;
  for (std::size_t from = 0; from < 2; ++from)
    for (Lane lane = 0; lane < lane_count; ++lane) streams.push_back({from, lane, bytes});
  return streams;
}

void expect_delivered(UdpPath& path, std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  auto streams = on_all_lanes(bytes);
  const bool ended = path.run(
      [&] {
        for (Stream& stream : streams) stream.move(path, random);
        return std::ranges::all_of(streams, &Stream::done) && path.end(0).unacknowledged() == 0 &&
               path.end(1).unacknowledged() == 0;
      },
      600);
  EXPECT_TRUE(ended);
  EXPECT_TRUE(std::ranges::all_of(streams, &Stream::intact));
}

TEST(UdpConnection, delivers_every_byte_once_and_in_order_over_any_path) {
  for (unsigned seed = 0; seed < (support::sanitized ? 4 : 12); ++seed) {
    UdpPath path({.bytes_per_second = 20e6,
                  .queue_bytes = 100'000,
                  .delay = seed % 3 == 0 ? 100us : 3000us,
                  .loss = 0.02 * (seed % 4),
                  .reordered = seed % 2 * 0.1,
                  .duplicated = seed % 5 * 0.02,
                  .most_packet_bytes = seed % 4 == 3 ? 1300u : 1472u,
                  .first_link_bytes = seed % 4 == 2 ? 65'507u : 1472u,
                  .ring_bytes = 64 << 10,
                  .seed = seed});
    expect_delivered(path, 100'000, seed);
    EXPECT_LE(path.end(0).packet_bytes(), seed % 4 == 3 ? 1300u : 1472u);
  }
}

// Collectives send both ways, so an acknowledgement waits behind the packets of whoever sends it, and where an end has
// to wait for a core now and then, these are many.
TEST(UdpConnection, fills_a_line_in_both_directions) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    UdpPath path({.bytes_per_second = 12.5e6,
                  .burst_bytes = 32 << 10,
                  .queue_bytes = 625'000,
                  .delay = 50us,
                  .ring_bytes = 8 << 20,
                  .rest = 500us,
                  .seed = seed});
    constexpr std::size_t bytes = 2 << 20, rounds = 6;
    const std::vector<std::byte> data(bytes);
    std::array<std::size_t, 2> sent{}, received{};
    std::size_t due = 0;  // by both, at the end of a round
    const auto exchange = [&] {
      due += bytes;
      return path.run(
          [&] {
            for (std::size_t end = 0; end < 2; ++end) {
              sent[end] += path.end(end).try_send(0, {}, ConstBytes(data).first(due - sent[end]));
              const std::size_t ready = path.end(end).view(0).size();
              path.end(end).release(0, ready);
              received[end] += ready;
            }
            return received[0] == due && received[1] == due;
          },
          60);
    };
    ASSERT_TRUE(exchange());  // finds the rate
    const double begin = path.seconds();
    for (std::size_t round = 0; round < rounds; ++round) ASSERT_TRUE(exchange());
    EXPECT_GT(static_cast<double>(bytes * rounds) / (path.seconds() - begin), 0.87 * 12.5e6) << seed;
  }
}

// Who rests on a slow line looks at what has come, and acknowledges it, every half millisecond only.
TEST(UdpConnection, ends_that_seldom_look_lose_nothing_by_it) {
  for (const auto looks : {0us, 500us}) {
    UdpPath path(
        {.bytes_per_second = 12.5e6, .queue_bytes = 625'000, .delay = 50us, .ring_bytes = 8 << 20, .looks = looks});
    const std::vector<std::byte> memory(256 << 10);
    std::array<std::size_t, 2> received{}, at_start{};
    double most = 0;
    path.run(
        [&] {
          for (std::size_t end = 0; end < 2; ++end) {
            while (path.end(end).try_send(0, {}, memory) > 0) continue;
            const std::size_t ready = path.end(end).view(0).size();
            path.end(end).release(0, ready);
            received[end] += ready;
            EXPECT_FALSE(path.end(end).rate().shared()) << "there is nobody else, at " << path.seconds() << " s";
          }
          if (path.seconds() < 1)
            at_start = received;
          else
            most = std::max({most, path.end(0).rate().bandwidth(), path.end(1).rate().bandwidth()});
          return path.seconds() >= 4;
        },
        4);
    for (std::size_t end = 0; end < 2; ++end)
      EXPECT_GT(static_cast<double>(received[end] - at_start[end]), 0.9 * 3 * 12.5e6) << looks.count();
    EXPECT_LT(most, 1.1 * 12.5e6) << looks.count();
  }
}

TEST(UdpLane, knows_what_is_missing) {
  UdpReceiveLane lane(64 << 10);
  const std::vector<std::byte> memory(100);
  ASSERT_TRUE(lane.arrived(0, memory));
  ASSERT_TRUE(lane.arrived(200, memory));
  EXPECT_EQ(lane.missing(100), 0U);
  EXPECT_EQ(lane.missing(150), 50U);
  EXPECT_EQ(lane.missing(250), 100U);
  EXPECT_EQ(lane.missing(400), 200U);
  lane.release(60);
  EXPECT_EQ(lane.missing(40), 0U);
  EXPECT_EQ(lane.missing(340), 200U);
  ASSERT_TRUE(lane.arrived(100, memory));
  EXPECT_EQ(lane.missing(340), 100U);
}

// Two exchange vectors, one always a moment behind the other. When the first one has nothing left to send its queue
// empties, and the acknowledgements in it come faster than packets arrived: that is no faster path.
TEST(UdpConnection, takes_no_path_for_faster_than_it_is_where_both_ends_send) {
  for (unsigned seed = 0; seed < 3; ++seed) {
    constexpr double rate = 25e6;
    UdpPath path({.bytes_per_second = rate, .queue_bytes = 1'250'000, .delay = 20ms, .loss = 0.01, .seed = seed});
    std::mt19937 random(seed);
    double most = 0;
    for (int round = 0; round < 20; ++round) {
      std::array<Stream, 2> streams{Stream{.from = 0, .bytes = 4 << 20}, Stream{.from = 1, .bytes = 4 << 20}};
      const double begin = path.seconds();
      ASSERT_TRUE(path.run(
          [&] {
            streams[0].move(path, random);
            if (path.seconds() > begin + 0.02) streams[1].move(path, random);
            if (round >= 3) most = std::max({most, path.end(0).rate().bandwidth(), path.end(1).rate().bandwidth()});
            return streams[0].done() && streams[1].done();
          },
          begin + 10));
    }
    EXPECT_LT(most, 1.1 * rate) << seed;
    EXPECT_GT(most, 0.9 * rate) << seed;
  }
}

// What has arrived is told again and again for as long as the sender may ask, which is dozens of ranges here.
TEST(UdpConnection, acknowledgements_of_a_path_that_loses_packets_are_small) {
  UdpPath path({.bytes_per_second = 25e6, .delay = 20ms, .loss = 0.02, .seed = 1});
  std::size_t sent = 0, told = 0;
  path.tap = [&](std::vector<std::byte>& datagram) {
    PacketHeader header;
    std::memcpy(&header, datagram.data(), sizeof header);
    (header.payload > 0 ? sent : told) += datagram.size() + 28;
  };
  Stream stream{.bytes = 16 << 20};
  std::mt19937 random(1);
  ASSERT_TRUE(path.run([&] { return stream.move(path, random), stream.done(); }, 60));
  EXPECT_LT(static_cast<double>(told), 0.09 * static_cast<double>(sent));
}

TEST(UdpConnection, leaves_room_for_a_seal_in_every_packet) {
  UdpPath path({.delay = 100us, .most_packet_bytes = 1452, .first_link_bytes = 1472, .seal_bytes = 16});
  expect_delivered(path, 300'000, 1);
  EXPECT_EQ(path.end(0).packet_bytes(), 1452U);
  EXPECT_EQ(path.largest(), 1472U) << "what was tried";
  EXPECT_LT(path.dropped(), 10U);
}

TEST(UdpConnection, survives_packets_that_are_damaged_on_the_way) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    UdpPath path({.bytes_per_second = 20e6, .delay = 300us, .ring_bytes = 64 << 10, .seed = seed});
    std::mt19937 random(seed);
    std::vector<std::byte> before;
    // Cut, replaced by an earlier one, or changed in what is no payload: those a checksum of the kernel's has let
    // through would be wrong sums, and are the network's.
    path.tap = [&](std::vector<std::byte>& datagram) {
      const auto kind = random() % 30;
      if (kind == 0) datagram.resize(random() % datagram.size());
      if (kind == 1) std::swap(datagram, before);
      if (kind == 2) datagram[random() % 8] ^= std::byte{16};
      if (kind == 3) datagram.push_back(std::byte{1});
      if (kind == 4 && datagram.size() > 40) datagram[36 + random() % 4] = static_cast<std::byte>(random());
      if (kind == 5) before = datagram;
    };
    std::mt19937 order(seed);
    auto streams = on_all_lanes(60'000);
    path.run(
        [&] {
          for (Stream& stream : streams) stream.move(path, order);
          return std::ranges::all_of(streams, &Stream::done);
        },
        600);
    for (const Stream& stream : streams) EXPECT_LE(stream.received, stream.bytes);
  }
}

// Any bytes behind the right key: nothing is accepted that was not sent, and nothing crashes.
TEST(UdpConnection, believes_no_nonsense) {
  std::mt19937 random(3);
  UdpConnection connection({.self = 0, .peer_key = 1, .ring_bytes = 64 << 10, .peer_ring_bytes = 64 << 10});
  auto now = UdpConnection::Time() + 1h;
  std::array<std::byte, 1000> memory{};
  connection.try_send(0, {}, memory);
  OutgoingPacket outgoing;
  for (int i = 0; i < 40'000; ++i) {
    std::array<std::byte, 400> bytes;
    for (std::size_t k = 0; k < 160; ++k) bytes[k] = static_cast<std::byte>(random() % 7 == 0 ? random() : 0);
    PacketHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    header.key = 5;
    header.version = udp_version;
    header.kind = random() % 2 == 0 ? PacketKind::data : PacketKind::probe;
    header.lane = random() % (lane_count + 1) & 0x7f;
    header.ranges = static_cast<std::uint8_t>(random() % 3);
    const std::size_t head =
        sizeof header + (header.ranges > 0 ? Acknowledgement::fixed_bytes + header.ranges * sizeof(NumberRange) : 0);
    header.payload = static_cast<std::uint16_t>(random() % 100);
    std::memcpy(bytes.data(), &header, sizeof header);
    Packet packet;
    if (parse_packet(std::span(bytes).first(std::min(bytes.size(), head + header.payload)), 5, packet))
      connection.receive(now, packet, now);
    now += 10us;
    connection.on_time(now);
    while (connection.next_packet(now, outgoing)) EXPECT_LE(outgoing.bytes(), 1472U);
    for (Lane lane = 0; lane < lane_count; ++lane) EXPECT_LE(connection.view(lane).size(), std::size_t{64} << 10);
  }
}

TEST(UdpConnection, never_sends_more_than_a_reader_that_does_not_read_has_room_for) {
  UdpPath path({.delay = 200us, .ring_bytes = 64 << 10});
  const std::vector<std::byte> memory(300'000);
  std::size_t sent = 0, most = 0;
  path.run(
      [&] {
        sent += path.end(0).try_send(1, {}, std::span(memory).subspan(0, 20'000));
        most = std::max(most, path.end(1).view(1).size());
        // Another lane is free all the while.
        if (path.end(1).view(2).empty() && path.seconds() > 1) path.end(0).try_send(2, {}, std::span(memory).first(4));
        return path.end(1).view(2).size() >= 4;
      },
      10);
  EXPECT_EQ(path.end(1).view(2).size(), 4U);
  EXPECT_EQ(most, std::size_t{64} << 10);
  EXPECT_LE(sent, std::size_t{128} << 10) << "one ring at either end";
  EXPECT_GT(sent, std::size_t{120} << 10);
  path.end(1).release(1, most);
  path.run([&] { return path.end(1).view(1).size() == sent - most; }, 20);
  EXPECT_EQ(path.end(1).view(1).size(), sent - most) << "credit given back is used";
}

TEST(UdpConnection, finds_the_news_of_credit_though_it_was_lost) {
  UdpPath path({.delay = 200us, .ring_bytes = 64 << 10});
  const std::vector<std::byte> memory(128 << 10);
  std::size_t sent = 0, received = 0;
  for (int round = 0; round < 20; ++round) {
    path.set_loss(0);
    path.run(
        [&] {
          sent += path.end(0).try_send(0, {}, memory);
          return path.end(1).view(0).size() == std::size_t{64} << 10;
        },
        100);
    const std::size_t view = path.end(1).view(0).size();
    ASSERT_EQ(view, std::size_t{64} << 10);
    path.end(1).release(0, view);
    received += view;
    path.set_loss(1);  // whatever says so now is lost
    const double until = path.seconds() + 0.001;
    path.run([&] { return path.seconds() > until; }, until + 1);
  }
  EXPECT_EQ(received, std::size_t{20} * (64 << 10));
}

// What it sends by itself acknowledges nothing, so it tells of no room.
TEST(UdpConnection, finds_the_news_of_credit_though_its_peer_sends_all_the_while) {
  constexpr std::size_t ring = 64 << 10;
  UdpPath path({.delay = 200us, .ring_bytes = ring});
  const std::vector<std::byte> memory(2 * ring);
  double next = 0;
  const auto exchange = [&] {
    path.end(0).try_send(0, {}, memory);
    if (path.seconds() >= next && path.end(1).try_send(1, {}, std::span(memory).first(100)) > 0)
      next = path.seconds() + 0.0005;
    path.end(0).release(1, path.end(0).view(1).size());
    return path.seconds() > 0.3;
  };
  path.run(exchange, 1);
  ASSERT_EQ(path.end(1).view(0).size(), ring);

  std::size_t lost = 0;
  path.tap = [&](std::vector<std::byte>& datagram) {
    PacketHeader header;
    std::memcpy(&header, datagram.data(), sizeof header);
    if (header.from == 0 || header.ranges == 0 || lost > 0) return;
    datagram.clear();
    ++lost;
  };
  path.end(1).release(0, ring);
  const auto goes_on = [&] {
    exchange();
    return !path.end(1).view(0).empty();
  };
  EXPECT_TRUE(path.run(goes_on, path.seconds() + 0.1));
  EXPECT_EQ(lost, 1U);
}

TEST(UdpConnection, knows_a_path_that_lets_only_small_packets_through_from_one_that_loses_many) {
  const std::vector<std::byte> memory(256 << 10);
  for (const auto& [most, loss] : {std::pair<std::size_t, double>{1472, 0.4}, {1300, 0}, {900, 0}}) {
    UdpPath path({.delay = 1ms});
    std::size_t received = 0;
    const auto move = [&] {
      while (path.end(0).try_send(0, {}, memory) > 0) continue;
      const std::size_t bytes = path.end(1).view(0).size();
      path.end(1).release(0, bytes);
      received += bytes;
      return path.end(0).is_too_narrow(path.now());
    };
    EXPECT_FALSE(path.run(move, 1));
    EXPECT_GT(received, memory.size());
    path.set_most_packet_bytes(most);
    path.set_loss(loss);
    const std::size_t before = received;
    const bool is_narrow = path.run(move, 12);
    EXPECT_EQ(is_narrow, most < PacketSize::base) << most;
    EXPECT_TRUE(is_narrow || received > before + memory.size()) << most;
  }
}

// A path that loses half of all packets answers now and then; one that loses all never does. Where nothing is sent
// there is nothing to answer.
TEST(UdpConnection, knows_for_how_long_nothing_has_been_acknowledged) {
  const std::vector<std::byte> memory(256 << 10);
  for (const double loss : {0.5, 1.0}) {
    UdpPath path({.delay = 1ms});
    bool sends = true;
    UdpConnection::Duration longest{};
    const auto move = [&] {
      while (sends && path.end(0).try_send(0, {}, memory) > 0) continue;
      path.end(1).release(0, path.end(1).view(0).size());
      longest = std::max(longest, path.end(0).unanswered(path.now()));
      return false;
    };
    const auto move_for = [&](double seconds) { path.run(move, path.seconds() + seconds); };
    move_for(1);
    EXPECT_EQ(longest, 0s);
    path.set_loss(loss);
    move_for(30);
    if (loss < 1) {
      EXPECT_LT(longest, 10s);
    } else {
      EXPECT_GT(longest, 29s);
    }
    path.set_loss(0);
    move_for(2);
    EXPECT_EQ(path.end(0).unanswered(path.now()), 0s);
    sends = false;
    move_for(2);
    longest = {};
    path.set_loss(1);
    move_for(30);
    EXPECT_EQ(longest, 0s);
  }
}

// Messages one after the other, which leave room for small ones that are acknowledged all the while: there is no
// silence.
TEST(UdpConnection, sends_smaller_packets_where_large_ones_begin_to_vanish_though_small_messages_arrive) {
  const std::vector<std::byte> memory(20'000);
  UdpPath path({.delay = 1ms});
  std::size_t sent = 0, received = 0;
  double next_message = 0;
  const auto move = [&] {
    if (received == sent) sent += path.end(0).try_send(0, {}, memory);
    if (path.seconds() >= next_message && path.end(0).try_send(1, {}, std::span(memory).first(4)) > 0)
      next_message = path.seconds() + 0.001;
    for (Lane lane = 0; lane < 2; ++lane) {
      const std::size_t bytes = path.end(1).view(lane).size();
      path.end(1).release(lane, bytes);
      if (lane == 0) received += bytes;
    }
    EXPECT_FALSE(path.end(0).is_too_narrow(path.now()));
    return false;
  };
  path.run(move, 1);
  EXPECT_EQ(path.end(0).packet_bytes(), 1472U);
  path.set_most_packet_bytes(1300);
  path.run(move, 2);  // until it has noticed
  const std::size_t before = received;
  path.run(move, 3);
  EXPECT_LE(path.end(0).packet_bytes(), 1300U);
  EXPECT_GT(received, before + 100 * memory.size());
}

// Bytes a second from end 0 to end 1 over so many seconds, after the first of them.
double rate_over(const PathOptions& options, double duration, UdpPath& path) {
  const std::vector<std::byte> memory(256 << 10);
  std::size_t received = 0, at_start = 0;
  path.run(
      [&] {
        while (path.end(0).try_send(0, {}, memory) > 0) continue;
        if (const std::size_t bytes = path.end(1).view(0).size(); bytes > 0) {
          path.end(1).release(0, bytes);
          received += bytes;
        }
        if (path.seconds() < 1) {
          at_start = received;
          path.forget_queue();
        }
        return path.seconds() >= duration;
      },
      duration);
  return static_cast<double>(received - at_start) / (duration - 1) / options.bytes_per_second;
}

TEST(UdpConnection, fills_the_path_whatever_it_loses_at_random) {
  for (const auto& [loss, least] : {std::pair{0.0, 0.9}, std::pair{0.001, 0.9}, std::pair{0.01, 0.88}}) {
    PathOptions options{.bytes_per_second = 6e6, .queue_bytes = 200'000, .delay = 10ms, .loss = loss};
    UdpPath path(options);
    EXPECT_GT(rate_over(options, 4, path), least) << loss;
    EXPECT_LT(path.queued_most(), 100'000U) << "half of the queue is never used";
  }
}

TEST(UdpConnection, yields_where_loss_means_that_the_queue_is_full) {
  // A queue of a tenth of what the path holds: what is sent beyond is lost.
  PathOptions options{.bytes_per_second = 6e6, .queue_bytes = 12'000, .delay = 10ms};
  UdpPath path(options);
  EXPECT_GT(rate_over(options, 4, path), 0.6);
  const UdpCounts counts = path.end(0).counts();
  EXPECT_LT(static_cast<double>(counts.packets_lost), 0.08 * static_cast<double>(counts.packets_sent));
}

TEST(UdpConnection, takes_little_for_lost_that_is_only_late) {
  PathOptions options{.bytes_per_second = 6e6, .delay = 10ms, .reordered = 0.05};
  UdpPath path(options);
  EXPECT_GT(rate_over(options, 3, path), 0.8);
  EXPECT_LT(path.end(1).counts().packets_repeated, path.end(0).counts().packets_sent / 50);
}

}  // namespace
}  // namespace ranvier::transport
