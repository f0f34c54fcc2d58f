// The transport over tagged messages, on messages that behave as MPI's may: small ones arrive at once, large ones move
// only while their sender calls, and nothing is taken back.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "ranvier/error.h"
#include "transport/streams.h"
#include "transport/tagged_transport.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using transport::TaggedMessages;
using Clock = std::chrono::steady_clock;

constexpr std::size_t eager = 4096;

struct Message {
  std::vector<std::byte> eager_copy = {};
  ConstBytes memory = {};  // of a large one, which stays its sender's
  Bytes into = {};         // where its receiver wants it
  bool moved = false;
};

// What is under way between all ranks.
struct Network {
  std::mutex mutex;
  std::map<std::array<int, 3>, std::deque<std::shared_ptr<Message>>> queues;  // by sender, receiver and lane
  int receives_before_one_fails = -1;                                         // -1: none does
};

class FakeMessages final : public TaggedMessages {
 public:
  FakeMessages(std::shared_ptr<Network> network, Rank rank) : network_(std::move(network)), rank_(rank) {}

  Transfer send(Rank to, Lane lane, ConstBytes bytes, bool until_taken) override {
    const std::lock_guard lock(network_->mutex);
    auto message = std::make_shared<Message>();
    network_->queues[{rank_, to, lane}].push_back(message);
    if (bytes.size() <= eager) {
      message->eager_copy.assign(bytes.begin(), bytes.end());
      message->moved = !until_taken;
      return until_taken ? keep(message, false) : none;
    }
    message->memory = bytes;
    return keep(message, true);
  }
  std::optional<std::size_t> arrived(Rank from, Lane lane) override {
    const std::lock_guard lock(network_->mutex);
    const auto& queue = network_->queues[{from, rank_, lane}];
    if (queue.empty()) return std::nullopt;
    return queue.front()->memory.empty() ? queue.front()->eager_copy.size() : queue.front()->memory.size();
  }
  Transfer receive(Rank from, Lane lane, Bytes into) override {
    const std::lock_guard lock(network_->mutex);
    auto& queue = network_->queues[{from, rank_, lane}];
    const auto message = queue.front();
    queue.pop_front();
    if (network_->receives_before_one_fails >= 0 && network_->receives_before_one_fails-- == 0)
      throw Error(ErrorKind::internal, "a message was lost", from);
    if (message->memory.empty()) {
      std::memcpy(into.data(), message->eager_copy.data(), into.size());
      message->moved = true;
      return none;
    }
    message->into = into;
    return keep(message, false);
  }
  bool over(Transfer transfer) override {
    const std::lock_guard lock(network_->mutex);
    const auto& [message, is_sender] = transfers_.at(transfer);
    if (is_sender && !message->moved && !message->into.empty()) {
      std::memcpy(message->into.data(), message->memory.data(), message->into.size());
      message->moved = true;
    }
    if (!message->moved) return false;
    transfers_.erase(transfer);
    return true;
  }
  bool abandon(Transfer) override { return false; }
  void sleep(std::chrono::nanoseconds limit, const Fd&, int) override {
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(limit, 100us));
  }

 private:
  Transfer keep(std::shared_ptr<Message> message, bool is_sender) {
    transfers_[++last_] = {std::move(message), is_sender};
    return last_;
  }

  const std::shared_ptr<Network> network_;
  const Rank rank_;
  Transfer last_ = 0;
  std::map<Transfer, std::pair<std::shared_ptr<Message>, bool>> transfers_;
};

std::vector<std::unique_ptr<Transport>> tagged_world(
    Rank world, const std::shared_ptr<Network>& network = std::make_shared<Network>()) {
  std::vector<std::unique_ptr<Transport>> result;
  for (Rank rank = 0; rank < world; ++rank)
    result.push_back(transport::tagged_transport({.name = "fake", .rank = rank, .world = world},
                                                 std::make_unique<FakeMessages>(network, rank)));
  return result;
}

// Everything of a lane up to `bytes`, by one who polls.
std::vector<std::byte> read(Transport& transport, Rank from, Lane lane, std::size_t bytes) {
  std::vector<std::byte> all;
  for (const auto deadline = Clock::now() + 30s; all.size() < bytes && Clock::now() < deadline;) {
    const ConstBytes view = transport.try_recv(from, lane, {});
    all.insert(all.end(), view.begin(), view.end());
    transport.release(from, lane, view.size());
    if (view.empty()) transport.wait(1ms);
  }
  return all;
}

TEST(Tagged, StreamsArriveWhole) {
  const auto world = tagged_world(2);
  // Piece by piece: exchange_streams also sends to itself, which message libraries do not.
  const testing::StreamContent content;
  for (const std::size_t size : {1UL, 63UL, 5000UL, 60000UL}) {
    const ConstBytes head = content.at(0, 1, 2, 0, 24), body = content.at(0, 1, 2, 24, size);
    ASSERT_EQ(world[0]->try_send(1, 2, head, body), 24 + size);
    const auto got = read(*world[1], 0, 2, 24 + size);
    ASSERT_EQ(got.size(), 24 + size);
    EXPECT_EQ(std::memcmp(got.data(), content.at(0, 1, 2, 0, 24 + size).data(), got.size()), 0);
  }
}

TEST(Tagged, ALaneTakesSomeMessagesAndThenNoMoreUntilOneIsRead) {
  const auto world = tagged_world(2);
  const std::vector<std::byte> large(100'000, std::byte{5});
  std::size_t taken = 0;
  while (const std::size_t accepted = world[0]->try_send(1, 0, {}, large)) {
    taken += accepted;
    ASSERT_LT(taken, std::size_t{64} << 20);
  }
  EXPECT_GE(taken, world[0]->traits().buffered_bytes);
  EXPECT_TRUE(world[0]->sent(1, 0));                             // copied: the caller may write there again
  EXPECT_EQ(world[0]->try_send(1, 1, {}, large), large.size());  // lanes do not wait for one another
  EXPECT_EQ(read(*world[1], 0, 0, taken).size(), taken);
}

TEST(Tagged, WhatWasSentMovesWhileItsSenderComputes) {
  const auto world = tagged_world(2);
  const std::vector<std::byte> large(100'000, std::byte{9});
  ASSERT_EQ(world[0]->try_send(1, 0, {}, large), large.size());
  EXPECT_EQ(read(*world[1], 0, 0, large.size()), large);  // rank 0 makes no call meanwhile
}

TEST(Tagged, WhatWasSentIsDeliveredThoughItsSenderLeaves) {
  auto world = tagged_world(2);
  const std::vector<std::byte> large(100'000, std::byte{3});
  ASSERT_EQ(world[0]->try_send(1, 0, {}, large), large.size());
  std::jthread leaver([&] { world[0]->cancel(); });
  EXPECT_EQ(read(*world[1], 0, 0, large.size()), large);
  leaver.join();
  EXPECT_THROW(world[0]->try_send(1, 0, {}, large), Error);
}

TEST(Tagged, LargeMessagesAreReceivedSeveralAtOnce) {
  const auto network = std::make_shared<Network>();
  const auto world = tagged_world(2, network);
  std::vector<std::byte> all;
  for (const int value : {1, 2, 3}) {
    const std::vector<std::byte> large(100'000, static_cast<std::byte>(value));
    ASSERT_EQ(world[0]->try_send(1, 0, {}, large), large.size());
    all.insert(all.end(), large.begin(), large.end());
  }
  world[1]->try_recv(0, 0, {});
  {
    const std::lock_guard lock(network->mutex);
    EXPECT_TRUE((network->queues[{0, 1, 0}].empty()));  // the sender of each has been told that it may come
  }
  EXPECT_EQ(read(*world[1], 0, 0, all.size()), all);
}

TEST(Tagged, OfSmallMessagesThatNobodyTakesALaneTakesAFewMegabytes) {
  const auto world = tagged_world(2);
  const std::vector<std::byte> small(eager, std::byte{7});
  std::size_t taken = 0;
  while (const std::size_t accepted = world[0]->try_send(1, 0, {}, small)) {
    taken += accepted;
    ASSERT_LT(taken, std::size_t{16} << 20);
  }
  EXPECT_GT(taken, std::size_t{2} << 20);
  EXPECT_EQ(world[0]->try_send(1, 1, {}, small), small.size());  // lanes do not wait for one another
  EXPECT_EQ(read(*world[1], 0, 0, taken).size(), taken);
  EXPECT_EQ(world[0]->try_send(1, 0, {}, small), small.size());
}

TEST(Tagged, WhatIsLeftOfAMessageComesWithTheNextOne) {
  const auto world = tagged_world(2);
  const testing::StreamContent content;
  ASSERT_EQ(world[0]->try_send(1, 0, {}, content.at(0, 1, 0, 0, 30)), 30U);
  ASSERT_EQ(world[1]->try_recv(0, 0, {}).size(), 30U);
  world[1]->release(0, 0, 20);
  ASSERT_EQ(world[0]->try_send(1, 0, {}, content.at(0, 1, 0, 30, 50)), 50U);
  const ConstBytes view = world[1]->try_recv(0, 0, {});
  ASSERT_EQ(view.size(), 60U);
  EXPECT_EQ(std::memcmp(view.data(), content.at(0, 1, 0, 20, 60).data(), 60), 0);
}

TEST(Tagged, AMessageIsAnsweredInItsMemory) {
  const auto world = tagged_world(2);
  const std::vector<std::byte> head(32, std::byte{1}), asked(50'000, std::byte{2});
  ASSERT_EQ(world[0]->answers_in_place()->try_ask(1, 3, head, asked), head.size() + asked.size());
  ConstBytes view;
  for (const auto deadline = Clock::now() + 30s; view.empty() && Clock::now() < deadline;)
    view = world[1]->try_recv(0, 3, {});
  ASSERT_EQ(view.size(), head.size() + asked.size());
  AnswersInPlace& answers = *world[1]->answers_in_place();
  EXPECT_TRUE(answers.answerable(0, 3, view.first(100)).empty());  // more of the message would be lost
  EXPECT_TRUE(answers.answerable(0, 3, asked).empty());            // that is no memory of this transport
  const Bytes place = answers.answerable(0, 3, view.subspan(head.size()));
  ASSERT_EQ(place.data(), view.data() + head.size());
  ASSERT_EQ(place.size(), asked.size());
  std::memset(place.data(), 3, place.size());
  answers.answer(0, 3, head, place);
  EXPECT_TRUE(world[1]->try_recv(0, 3, {}).empty());
  std::vector<std::byte> expected = head;
  expected.resize(head.size() + asked.size(), std::byte{3});
  EXPECT_EQ(read(*world[0], 1, 3, expected.size()), expected);
}

TEST(Tagged, MemoryThatTheLibraryStillWritesToOutlivesTheTransport) {
  auto world = tagged_world(2);
  const std::vector<std::byte> large(100'000, std::byte{4});
  // No helper moves it: rank 0 calls all the time.
  ASSERT_EQ(world[0]->try_send(1, 0, {}, large), large.size());
  std::vector<std::byte> into(large.size());
  world[1]->try_recv(0, 0, into);  // begins to receive
  world[1].reset();
  while (world[0]->try_send(1, 0, {}, large) > 0) {
  }
  EXPECT_EQ(into, std::vector<std::byte>(large.size()));  // nothing that is the caller's
}

TEST(Tagged, NothingFollowsAMessageThatTheLibraryLost) {
  const auto network = std::make_shared<Network>();
  const auto world = tagged_world(2, network);
  network->receives_before_one_fails = 1;  // while the first one is under way
  for (const auto part : {std::byte{1}, std::byte{2}, std::byte{3}})
    ASSERT_GT(world[0]->try_send(1, 0, {}, std::vector(eager + 100, part)), 0U);
  std::vector<std::byte> got;
  bool failed = false;
  for (const auto deadline = Clock::now() + 30s; !failed && Clock::now() < deadline;) {
    try {
      const ConstBytes view = world[1]->try_recv(0, 0, {});
      got.insert(got.end(), view.begin(), view.end());
      world[1]->release(0, 0, view.size());
      world[0]->wait(1ms);
    } catch (const Error&) {
      failed = true;
    }
  }
  EXPECT_TRUE(failed);
  for (const std::byte byte : got) ASSERT_EQ(byte, std::byte{1});
}

TEST(Tagged, WhatIsNotThereIsRefused) {
  const auto world = tagged_world(2);
  EXPECT_THROW(world[0]->try_send(0, 0, {}, {}), Error);
  EXPECT_THROW(world[0]->try_recv(2, 0, {}), Error);
  EXPECT_THROW(world[0]->try_recv(1, lane_count, {}), Error);
  EXPECT_THROW(world[0]->release(1, 0, 1), Error);
}

}  // namespace
}  // namespace ranvier
