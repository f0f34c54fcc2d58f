// A udp connection and TCP on one line that is a list: what each of them gets of it.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "transport/tcp_rival.h"
#include "transport/udp_path.h"

namespace ranvier::transport {
namespace {

using namespace std::chrono_literals;
using support::BbrRival;
using support::CubicRival;
using support::ModelRival;
using support::PathOptions;
using support::UdpPath;

constexpr double rate = 12.5e6;  // bytes a second

PathOptions line_with_queue(std::chrono::milliseconds delay, double queue_seconds) {
  return {.bytes_per_second = rate,
          .queue_bytes = static_cast<std::size_t>(rate * queue_seconds),
          .delay = delay,
          .ring_bytes = 8 << 20};
}

// What each of them gets of the line from end 0 to end 1 between two times: the connection, then the rivals there.
std::vector<double> shares(UdpPath& path, std::size_t rivals, std::size_t ends, double from, double until) {
  const std::vector<std::byte> memory(256 << 10);
  std::vector<std::uint64_t> got(1 + rivals), before;
  path.run(
      [&] {
        for (std::size_t end = 0; end < ends; ++end) {
          while (path.end(end).try_send(0, {}, memory) > 0) continue;
          const std::size_t bytes = path.end(1 - end).view(0).size();
          path.end(1 - end).release(0, bytes);
          if (end == 0) got[0] += bytes;
        }
        for (std::size_t i = 0; i < rivals; ++i) got[1 + i] = path.rival(i).delivered_bytes();
        if (before.empty() && path.seconds() >= from) before = got;
        return path.seconds() >= until;
      },
      until);
  std::vector<double> shares;
  for (std::size_t i = 0; i < got.size(); ++i)
    shares.push_back(static_cast<double>(got[i] - before[i]) / (until - from) / rate);
  return shares;
}

// The mean over when TCP begins: what CUBIC gets in the first ten seconds depends on where its first losses fall, most
// where its acknowledgements wait in a queue, too, for then it grows by one packet in a tenth of a second.
template <typename Rival>
void expect_fair_beside(double least_one_way, double least_both_ways) {
  for (const auto& [delay, queue] : {std::pair{1ms, 0.005}, {1ms, 0.02}, {1ms, 0.05}, {5ms, 0.02}, {20ms, 0.05}}) {
    for (const std::size_t ways : {1, 2}) {
      double udp = 0, tcp = 0;
      constexpr std::array begins{0.0, 0.35, 0.7};
      for (const double begin : begins) {
        UdpPath path(line_with_queue(delay, queue));
        for (std::size_t end = 0; end < ways; ++end) path.add_rival(end, std::make_unique<Rival>(), begin);
        const auto found = shares(path, 1, ways, 3, 12);
        udp += found[0] / begins.size();
        tcp += found[1] / begins.size();
      }
      const std::string where = std::to_string(delay / 1ms) + " ms, a queue of " + std::to_string(queue) + " s, " +
                                std::to_string(ways) + " ways";
      const double least = ways == 1 ? least_one_way : least_both_ways;
      EXPECT_GT(udp, least) << where;
      EXPECT_GT(tcp, least) << where;
      EXPECT_GT(udp + tcp, 0.85) << where;
    }
  }
}

TEST(UdpFairness, shares_with_cubic) { expect_fair_beside<CubicRival>(0.33, 0.2); }
TEST(UdpFairness, shares_with_bbr) { expect_fair_beside<BbrRival>(0.25, 0.33); }

TEST(UdpFairness, has_the_line_again_when_tcp_is_gone) {
  UdpPath path(line_with_queue(1ms, 0.05));
  path.add_rival(0, std::make_unique<CubicRival>(), 0);
  EXPECT_LT(shares(path, 1, 1, 2, 6)[0], 0.65);
  path.remove_rivals();
  EXPECT_GT(shares(path, 0, 1, path.seconds() + 3, path.seconds() + 6)[0], 0.9);
  EXPECT_FALSE(path.end(0).rate().shared());
}

// Several of its own kind are no rivals whose queue has to be outdone.
TEST(UdpFairness, does_not_escalate_among_its_own) {
  UdpPath path(line_with_queue(1ms, 0.05));
  for (int i = 0; i < 3; ++i) path.add_rival(0, std::make_unique<ModelRival>(rate), 0);
  double sum = 0;
  for (const double share : shares(path, 3, 1, 2, 10)) {
    EXPECT_GT(share, 0.1);
    sum += share;
  }
  EXPECT_GT(sum, 0.95);
  EXPECT_LT(path.dropped(), 0.01 * 10 * rate / support::TcpRival::packet_bytes);
}

// As training sends: between bursts there is nothing to ask the queue by.
TEST(UdpFairness, never_stands_still_where_bursts_and_pauses_take_turns) {
  for (const double queue : {0.004, 0.02, 0.05}) {
    PathOptions options = line_with_queue(10ms, queue);
    UdpPath path(options);
    path.add_rival(0, std::make_unique<CubicRival>(), 0);
    const std::vector<std::byte> memory(256 << 10);
    std::size_t received = 0, before = 0;
    double next = 4;
    const bool ended = path.run(
        [&] {
          const double in_turn = std::fmod(path.seconds(), 0.55);
          while (in_turn < 0.36 && path.end(0).try_send(0, {}, memory) > 0) continue;
          const std::size_t bytes = path.end(1).view(0).size();
          path.end(1).release(0, bytes);
          received += bytes;
          if (path.seconds() < next) return false;
          next += 2;
          EXPECT_GT(received - before, 0.05 * 2 * rate) << queue << " s of queue, at " << path.seconds() << " s";
          before = received;
          return path.seconds() >= 20;
        },
        21);
    EXPECT_TRUE(ended);
  }
}

TEST(UdpFairness, is_alone_on_a_line_of_its_own) {
  for (const double loss : {0.0, 0.01}) {
    PathOptions options = line_with_queue(20ms, 0.05);
    options.loss = loss;
    UdpPath path(options);
    double shared = 0, looks = 0, next = 0;
    const std::vector<std::byte> memory(256 << 10);
    path.run(
        [&] {
          while (path.end(0).try_send(0, {}, memory) > 0) continue;
          path.end(1).release(0, path.end(1).view(0).size());
          if (path.seconds() < next) return false;
          next += 0.01;
          ++looks;
          shared += path.end(0).rate().shared();
          return path.seconds() >= 8;
        },
        9);
    EXPECT_LT(shared, 0.05 * looks) << loss;
  }
}

}  // namespace
}  // namespace ranvier::transport
