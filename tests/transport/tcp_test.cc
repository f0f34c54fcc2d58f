// The tcp transport over real sockets of this host, its ranks threads of this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "ranvier/error.h"
#include "ranvier/transport.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto patience = 60s;  // no test takes this long; a hang ends as a failure

std::vector<std::unique_ptr<Endpoint>> endpoints(Rank world) {
  std::vector<std::unique_ptr<Endpoint>> result;
  for (Rank rank = 0; rank < world; ++rank) result.push_back(tcp_endpoint({.rank = rank, .world = world}));
  return result;
}

std::vector<std::string> addresses_of(const std::vector<std::unique_ptr<Endpoint>>& world) {
  std::vector<std::string> result;
  for (const auto& endpoint : world) result.push_back(endpoint->address());
  return result;
}

// Calls body(rank) on a thread each.
void on_threads(Rank count, const std::function<void(Rank)>& body) {
  std::vector<std::jthread> threads;
  for (Rank rank = 0; rank < count; ++rank) threads.emplace_back([&body, rank] { body(rank); });
}

std::vector<std::unique_ptr<Transport>> tcp_world(Rank world) {
  const auto all = endpoints(world);
  const auto addresses = addresses_of(all);
  std::vector<std::unique_ptr<Transport>> transports(all.size());
  on_threads(world, [&](Rank rank) {
    const auto index = static_cast<std::size_t>(rank);
    transports[index] = all[index]->connect(addresses, Clock::now() + patience);
  });
  return transports;
}

// Byte `offset` of what `from` sends `to` on `lane`: any loss, repetition or mix-up shows.
std::byte expected_byte(Rank from, Rank to, Lane lane, std::size_t offset) {
  const std::size_t mixed = (offset + 1) * 0x9e3779b97f4a7c15 + static_cast<std::size_t>(from * 64 + to * 8 + lane);
  return static_cast<std::byte>(mixed >> 56);
}

// One direction of one lane, sent and received in random pieces.
struct Stream {
  Rank peer;
  Lane lane;
  std::size_t sent = 0;
  std::size_t received = 0;
};

void exchange(Transport& transport, std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Stream> streams;
  for (Rank peer = 0; peer < transport.world(); ++peer)
    for (Lane lane = 0; lane < lane_count && peer != transport.rank(); ++lane) streams.push_back({peer, lane});
  std::vector<std::byte> piece(200'000), into(200'000);
  const auto some = [&](std::size_t most) { return std::uniform_int_distribution<std::size_t>(0, most)(random); };
  const auto deadline = Clock::now() + patience;
  for (bool done = false; !done;) {
    ASSERT_LT(Clock::now(), deadline);
    done = true;
    bool moved = false;
    for (Stream& stream : streams) {
      const std::size_t offered = some(std::min(piece.size(), bytes - stream.sent));
      for (std::size_t i = 0; i < offered; ++i)
        piece[i] = expected_byte(transport.rank(), stream.peer, stream.lane, stream.sent + i);
      const std::size_t head = some(std::min<std::size_t>(offered, 64));
      const std::size_t accepted = transport.try_send(stream.peer, stream.lane, ConstBytes(piece).first(head),
                                                      ConstBytes(piece).subspan(head, offered - head));
      ASSERT_LE(accepted, offered);
      ASSERT_TRUE(accepted == 0 || accepted >= head);
      stream.sent += accepted;

      const Bytes wanted = Bytes(into).first(some(1) * some(std::min(into.size(), bytes - stream.received)));
      const ConstBytes view = transport.try_recv(stream.peer, stream.lane, wanted);
      const bool direct = !view.empty() && view.data() == wanted.data();
      const std::size_t used = direct ? view.size() : some(view.size());
      for (std::size_t i = 0; i < used; ++i)
        ASSERT_EQ(view[i], expected_byte(stream.peer, transport.rank(), stream.lane, stream.received + i));
      if (!direct) transport.release(stream.peer, stream.lane, used);
      stream.received += used;

      moved |= accepted + used > 0;
      done = done && stream.sent == bytes && stream.received == bytes && transport.sent(stream.peer, stream.lane);
    }
    if (!moved && !done) transport.wait(10ms);
  }
}

TEST(Tcp, EveryLaneDeliversEveryByteOnceAndInOrder) {
  for (const Rank world : {2, 4}) {
    const auto transports = tcp_world(world);
    on_threads(world, [&](Rank rank) { exchange(*transports[static_cast<std::size_t>(rank)], 2'000'000, 7U + rank); });
  }
}

}  // namespace
}  // namespace ranvier
