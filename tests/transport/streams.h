// Byte streams that say by their content who sent them to whom on which lane, and how far they are: a receiver that
// compares them finds any loss, repetition, reordering or mixing-up.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <random>
#include <vector>

#include "ranvier/transport.h"

namespace ranvier::testing {

class StreamContent {
 public:
  StreamContent() : table_(2 * period) {
    std::minstd_rand random(1);
    for (std::size_t i = 0; i < period; ++i) table_[i] = table_[i + period] = static_cast<std::byte>(random() >> 8);
  }
  // `bytes` (at most 65521) of a stream, from `offset`.
  ConstBytes at(Rank from, Rank to, Lane lane, std::size_t offset, std::size_t bytes) const {
    const auto key = static_cast<std::size_t>((from * 64 + to) * lane_count + lane) * 7919;
    return {table_.data() + (key + offset) % period, bytes};
  }
  static constexpr std::size_t period = 65521;  // a prime, so that no slice or slot is a multiple of it

 private:
  std::vector<std::byte> table_;
};

// Sends a stream to every rank on every lane and checks the streams that come, in random pieces, until all are through.
// `bytes`: of each stream. Fails when nothing arrives for a minute.
inline void exchange_streams(Transport& transport, std::size_t bytes, unsigned seed) {
  struct Stream {
    std::size_t sent = 0;
    std::size_t received = 0;
  };
  const StreamContent content;
  std::vector<std::array<Stream, lane_count>> streams(static_cast<std::size_t>(transport.world()));
  std::minstd_rand random(seed + static_cast<unsigned>(transport.rank()));
  const auto below = [&](std::size_t limit) { return random() % limit; };
  const auto piece = [&](std::size_t left) {
    constexpr std::array<std::size_t, 5> scales{2, 57, 400, 5000, StreamContent::period - 64};
    return std::min(left, 1 + below(scales[below(scales.size())]));
  };

  const auto send_some = [&](Rank to, Lane lane, std::size_t& sent) {
    const std::size_t head = std::min(below(3) == 0 ? below(65) : 0, bytes - sent);
    const std::size_t body = piece(bytes - sent - head);
    const std::size_t accepted = transport.try_send(to, lane, content.at(transport.rank(), to, lane, sent, head),
                                                    content.at(transport.rank(), to, lane, sent + head, body));
    if (accepted > 0) {
      EXPECT_GE(accepted, head);
      EXPECT_TRUE(accepted == head + body || (accepted - head) % 64 == 0) << "an element was torn in two";
    }
    sent += accepted;
    return accepted > 0;
  };
  const auto receive_some = [&](Rank from, Lane lane, std::size_t& received) {
    const ConstBytes view = transport.try_recv(from, lane, {});
    if (view.empty()) return false;
    const std::size_t used =
        std::min(view.size() <= 1 || below(2) == 0 ? view.size() : below(view.size()), StreamContent::period);
    EXPECT_LE(received + used, bytes);
    const ConstBytes expected = content.at(from, transport.rank(), lane, received, used);
    EXPECT_TRUE(used == 0 || std::memcmp(view.data(), expected.data(), used) == 0)
        << "from rank " << from << " on lane " << int{lane} << " at byte " << received;
    transport.release(from, lane, used);
    received += used;
    return true;
  };

  auto last_move = std::chrono::steady_clock::now();
  for (;;) {
    bool moved = false;
    bool done = true;
    for (Rank peer = 0; peer < transport.world(); ++peer) {
      for (Lane lane = 0; lane < lane_count; ++lane) {
        Stream& stream = streams[static_cast<std::size_t>(peer)][lane];
        moved |= stream.sent < bytes && send_some(peer, lane, stream.sent);
        moved |= receive_some(peer, lane, stream.received);
        done = done && stream.sent == bytes && stream.received == bytes;
      }
    }
    if (done || ::testing::Test::HasFailure()) return;
    const auto now = std::chrono::steady_clock::now();
    if (moved) {
      last_move = now;
    } else {
      ASSERT_LT(now - last_move, std::chrono::minutes(1)) << "nothing moves";
      transport.wait(std::chrono::seconds(1));
    }
  }
}

}  // namespace ranvier::testing
