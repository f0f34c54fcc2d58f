// A communicator that is left, or destroyed, while threads are in the midst of its operations; on the in-process
// loopback. Two ranks that wait for what nobody sends, so that nothing but the closing can end them.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "ranvier/transport.h"
#include "support/refusal.h"
#include "support/transport_over.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using support::refusal;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// Far less than the operations' own timeouts, and far more than closing takes on a busy machine.
constexpr auto in_time = 20s;

using Ranks = std::vector<std::unique_ptr<Communicator>>;

Ranks two_with_helpers() {
  Ranks ranks;
  for (auto& transport : loopback_world(2)) ranks.push_back(Communicator::over(std::move(transport)));
  return ranks;
}

// Waits with `wait(work)` on another thread, closes with `close(communicator)` on this one.
template <class Wait, class Close>
void close_while_another_waits(const Wait& wait, const Close& close) {
  auto ranks = two_with_helpers();
  std::vector<float> never(1);
  Work work = ranks[0]->start_recv(never, 1, 99);
  const auto start = Clock::now();
  std::latch waiting(1);
  std::jthread waiter([&] {
    waiting.count_down();
    EXPECT_THAT(refusal([&] { wait(work); }, ErrorKind::aborted), HasSubstr("closed"));
  });
  waiting.wait();
  std::this_thread::sleep_for(20ms);  // it drives by now, and naps
  close(ranks[0]);
  waiter.join();
  EXPECT_LT(Clock::now() - start, in_time);
}

void leave(std::unique_ptr<Communicator>& communicator) { communicator->leave(); }
void destroy(std::unique_ptr<Communicator>& communicator) { communicator.reset(); }

TEST(ClosingTest, EndsTheWaitOfAnotherThread) {
  close_while_another_waits([](Work& work) { work.wait(); }, leave);
  close_while_another_waits([](Work& work) { work.wait(); }, destroy);
}

TEST(ClosingTest, EndsALimitedWaitOfAnotherThread) {
  close_while_another_waits([](Work& work) { EXPECT_TRUE(work.wait_for(1min)); }, leave);
  close_while_another_waits([](Work& work) { EXPECT_TRUE(work.wait_for(1min)); }, destroy);
}

TEST(ClosingTest, EndsABlockingCallOfAnotherThread) {
  auto ranks = two_with_helpers();
  std::vector<float> values(100);
  std::jthread caller(
      [&] { EXPECT_THAT(refusal([&] { ranks[0]->all_reduce(values); }, ErrorKind::aborted), HasSubstr("closed")); });
  while (ranks[0]->flight_record().find("all_reduce") == std::string::npos) std::this_thread::yield();
  const auto start = Clock::now();
  ranks[0]->leave();
  caller.join();
  EXPECT_LT(Clock::now() - start, in_time);
}

// Several threads wait, of which one drives and the others sleep.
TEST(ClosingTest, NobodyWhoWaitsMeetsAnEngineThatIsGone) {
  for (int round = 0; round < 50; ++round) {
    auto ranks = two_with_helpers();
    std::vector<float> never(4);
    std::vector<Work> works;
    for (std::size_t i = 0; i < never.size(); ++i)
      works.push_back(ranks[0]->start_recv(std::span(never).subspan(i, 1), 1, i));
    std::vector<std::jthread> waiters;
    for (Work& work : works)
      waiters.emplace_back(
          [&work] { EXPECT_THAT(refusal([&] { work.wait(); }, ErrorKind::aborted), HasSubstr("closed")); });
    std::this_thread::sleep_for(std::chrono::microseconds(100) * (round % 10));
    ranks[0].reset();
  }
}

TEST(ClosingTest, InACallbackIsAllowed) {
  for (const auto close : {leave, destroy}) {
    for (const bool waited : {false, true}) {
      auto ranks = two_with_helpers();
      std::vector<float> sent(1, 3.0F), received(1), never(1);
      Work other = ranks[0]->start_recv(never, 1, 98);
      Work work = ranks[0]->start_recv(received, 1, 99);
      std::latch closed(1);
      work.on_done([&] {
        close(ranks[0]);
        closed.count_down();
      });
      ranks[1]->send(sent, 0, 99);
      if (waited) work.wait();
      closed.wait();
      EXPECT_EQ(received[0], 3.0F);
      EXPECT_THAT(refusal([&] { other.wait(); }, ErrorKind::aborted), HasSubstr("closed"));
    }
  }
}

TEST(ClosingTest, WhatStartsMeanwhileEnds) {
  for (int round = 0; round < 50; ++round) {
    auto ranks = two_with_helpers();
    std::atomic<bool> refused = false;
    std::atomic<int> started = 0, ended = 0;
    std::jthread caller([&] {
      std::vector<float> never(1);
      while (!refused) try {
          Work work = ranks[0]->start_recv(never, 1, 99);
          ++started;
          work.on_done([&] { ++ended; });
        } catch (const Error&) {
          refused = true;
        }
    });
    while (started == 0) std::this_thread::yield();
    ranks[0]->leave();
    caller.join();
    const auto until = Clock::now() + in_time;
    while (ended < started && Clock::now() < until) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(ended, started);
  }
}

struct Endings {
  std::atomic<int> closed = 0, cancelled = 0;
};

class ToldHowItEnds : public support::TransportOver {
 public:
  ToldHowItEnds(std::unique_ptr<Transport> inner, Endings& endings)
      : TransportOver(std::move(inner)), endings_(endings) {}
  void cancel() override {
    ++endings_.cancelled;
    TransportOver::cancel();
  }
  void close() override {
    ++endings_.closed;
    TransportOver::close();
  }

 private:
  Endings& endings_;
};

// What others have not read yet is still on its way then.
TEST(ClosingTest, GivesUpNothingThatWasAccepted) {
  for (const bool fails : {false, true}) {
    Endings endings;
    auto transports = loopback_world(2);
    auto communicator = Communicator::over(std::make_unique<ToldHowItEnds>(std::move(transports[0]), endings));
    std::vector<float> never(1);
    Work pending = communicator->start_recv(never, 1, 99);
    if (fails) communicator->abort("it cannot go on");
    communicator.reset();
    EXPECT_THAT(refusal([&] { pending.wait(); }, ErrorKind::aborted), HasSubstr(fails ? "cannot go on" : "closed"));
    EXPECT_EQ(endings.closed, fails ? 0 : 1);
    EXPECT_EQ(endings.cancelled > 0, fails);
  }
}

}  // namespace
}  // namespace ranvier
