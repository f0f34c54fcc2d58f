// Whoever waits says what for, and sleeps where the transport says that it takes long, rather than ask again and again.
#include <gtest/gtest.h>

#include <algorithm>
#include <latch>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/transport.h"
#include "support/transport_over.h"

namespace ranvier {
namespace {

constexpr std::size_t count = 64 << 10, bytes = count * sizeof(float);
constexpr std::size_t a_head = 64;  // of a message, at most

// A thousand bytes at a time come, each after a sleep: whoever does not sleep gets nothing.
class SlowLine final : public support::TransportOver {
 public:
  using TransportOver::TransportOver;

  TransportTraits traits() const override {
    TransportTraits traits = TransportOver::traits();
    traits.polls_before_yield = 0;
    return traits;
  }
  ConstBytes try_recv(Rank from, Lane lane, Bytes into) override {
    if (!here_) {
      ++vain;
      return {};
    }
    const ConstBytes view = TransportOver::try_recv(from, lane, into.first(std::min<std::size_t>(into.size(), 1000)));
    if (view.empty()) return view;
    here_ = false;
    ++pieces;
    return view.first(std::min<std::size_t>(view.size(), 1000));
  }
  bool expect(std::span<const Expected> all) override {
    for (const Expected& each : all) {
      EXPECT_EQ(each.from, 1);
      EXPECT_LE(each.bytes, each.most);
      expected.push_back(each.most);
      if (each.bytes < each.most) ++beginnings;
    }
    return !all.empty();
  }
  void wait(std::chrono::nanoseconds) override {
    here_ = true;
    ++sleeps;
  }

  std::size_t vain = 0, pieces = 0, sleeps = 0;
  std::size_t beginnings = 0;         // of messages that were awaited
  std::vector<std::size_t> expected;  // the most each time

 private:
  bool here_ = true;
};

struct Pair {
  Pair() {
    auto world = loopback_world(2);
    auto slow = std::make_unique<SlowLine>(std::move(world[0]));
    line = slow.get();
    const CommunicatorOptions options{.algorithm = "ring", .background_progress = false};
    self = Communicator::over(std::move(slow), options);
    peer = Communicator::over(std::move(world[1]), options);
  }
  SlowLine* line;
  std::unique_ptr<Communicator> self, peer;
};

// Three attempts before it asks, and those that a short operation would end in.
void expect_patience(const SlowLine& line) {
  EXPECT_GE(line.pieces, bytes / 2 / 1000);
  EXPECT_LE(line.vain, 4 * line.pieces + 100);
  ASSERT_GE(line.expected.size(), std::max<std::size_t>(line.pieces / 2, 1));
  EXPECT_LE(*std::ranges::max_element(line.expected), bytes + a_head);
  EXPECT_GT(*std::ranges::min_element(line.expected), 0U);
}

TEST(Expecting, AnAllReduceSaysWhatItWaitsFor) {
  Pair pair;
  std::vector<float> mine(count, 1), theirs(count, 2);
  std::thread other([&] { pair.peer->all_reduce(theirs); });
  pair.self->all_reduce(mine);
  other.join();
  EXPECT_EQ(mine, std::vector<float>(count, 3));
  expect_patience(*pair.line);
}

TEST(Expecting, AMessageSaysHowMuchOfItIsMissing) {
  Pair pair;
  std::vector<float> got(count);
  std::thread other([&] { pair.peer->send(std::vector<float>(count, 5), 0); });
  pair.self->recv(got, 1);
  other.join();
  EXPECT_EQ(got, std::vector<float>(count, 5));
  expect_patience(*pair.line);
  EXPECT_TRUE(std::ranges::is_sorted(pair.line->expected, std::greater()));
}

// A send that has no room yet is no reason to stay awake: the transport wakes up when there is some.
TEST(Expecting, AMessageIsAwaitedAlsoWhileAnotherOneWaitsToGo) {
  Pair pair;
  std::vector<float> got(count), far(4 << 20, 7), there(4 << 20);
  std::latch is_here(1);
  Work sending = pair.self->start_send(far, 1, 1);
  std::thread other([&] {
    pair.peer->send(std::vector<float>(count, 5), 0);
    is_here.wait();  // nothing of the other message is read until then
    pair.peer->recv(there, 0, 1);
  });
  pair.self->recv(got, 1);
  is_here.count_down();
  expect_patience(*pair.line);
  sending.wait();
  other.join();
  EXPECT_EQ(got, std::vector<float>(count, 5));
  EXPECT_EQ(there, far);
}

// Of all that is awaited from a peer, the first who asks hears what has come for any.
TEST(Expecting, ManyMessagesOfAPeerAreOneQuestion) {
  constexpr std::size_t messages = 16;
  Pair pair;
  std::vector<float> got(count);
  std::vector<Work> works;
  for (std::size_t i = 0; i < messages; ++i)
    works.push_back(pair.self->start_recv(std::span(got).subspan(i * count / messages, count / messages), 1, i));
  std::thread other([&] {
    const std::vector<float> data(count / messages, 5);
    for (std::size_t i = messages; i-- > 0;) pair.peer->send(data, 0, i);
  });
  Work::wait_all(works);
  other.join();
  EXPECT_EQ(got, std::vector<float>(count, 5));
  EXPECT_LE(pair.line->vain, 6 * pair.line->pieces + 100);
  EXPECT_GT(pair.line->beginnings, 0U);
}

}  // namespace
}  // namespace ranvier
