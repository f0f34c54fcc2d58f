// The news of a failure overtakes the messages of before it: what has arrived by then is taken all the same. On the
// in-process loopback, with nobody to drive rank 0 but whoever waits.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "ranvier/transport.h"
#include "support/on_threads.h"
#include "support/refusal.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using support::refusal;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::unique_ptr<Communicator>> two_ranks() {
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (auto& transport : loopback_world(2))
    ranks.push_back(Communicator::over(std::move(transport), {.timeout = 20s, .background_progress = false}));
  return ranks;
}

TEST(FailureNewsTest, AMessageThatHasArrivedIsReceived) {
  const auto ranks = two_ranks();
  const std::vector<float> sent = {1, 2};
  std::vector<float> received(2), never(2);
  Work lacking = ranks[0]->start_recv(never, 1, 98);
  Work arrived = ranks[0]->start_recv(received, 1, 99);
  ranks[1]->send(sent, 0, 99);
  ranks[0]->abort("enough");
  arrived.wait();
  EXPECT_THAT(received, ElementsAre(1, 2));
  EXPECT_THAT(refusal([&] { lacking.wait(); }, ErrorKind::aborted), HasSubstr("enough"));
}

// Though this rank has asked its link just before.
TEST(FailureNewsTest, AMessageThatArrivesMeanwhileIsReceived) {
  const auto ranks = two_ranks();
  const std::vector<float> sent = {1, 2};
  std::vector<float> received(2);
  Work arrived = ranks[0]->start_recv(received, 1, 99);
  EXPECT_FALSE(arrived.wait_for(1ms));
  ranks[1]->send(sent, 0, 99);
  ranks[0]->abort("enough");
  arrived.wait();
  EXPECT_THAT(received, ElementsAre(1, 2));
}

TEST(FailureNewsTest, TagsThatNoProgramGaveAreNotShown) {
  const auto ranks = two_ranks();
  std::vector<float> theirs(2), own(2);
  Work of_program = ranks[0]->start_recv(theirs, 1, 98);
  Work of_codes = ranks[0]->start_recv(own, 1, std::uint64_t{1} << 63);
  ranks[0]->abort("enough");
  EXPECT_THAT(refusal([&] { of_program.wait(); }, ErrorKind::aborted),
              HasSubstr("recv of 8 B from rank 1 with tag 98"));
  const std::string said = refusal([&] { of_codes.wait(); }, ErrorKind::aborted);
  EXPECT_THAT(said, HasSubstr("recv of 8 B of ranvier's own from rank 1 failed"));
}

// On return from abort() its memory is the caller's, whatever was on its way.
TEST(FailureNewsTest, NothingReadsMemoryAfterAnAbort) {
  const auto ranks = two_ranks();
  std::vector<float> sent = {1, 2}, received(2);
  Work sending = ranks[0]->start_send(sent, 1, 99);
  ranks[0]->abort("enough");
  sent = {3, 4};
  sending.wait();
  ranks[1]->recv(received, 0, 99);
  EXPECT_THAT(received, ElementsAre(1, 2));
}

// Nor believes what it reads of memory that was lent.
TEST(FailureNewsTest, NobodyEndsACollectiveOnMemoryThatItsOwnerHasBack) {
  const auto ranks = two_ranks();
  constexpr std::size_t count = 1 << 20;
  const auto memory = ranks[0]->allocate(count * sizeof(float));
  const std::span values(reinterpret_cast<float*>(memory.get()), count);
  std::ranges::fill(values, 1.0f);
  std::vector<float> received(count);
  const auto broadcast = [](std::span<float> own) {
    return Request{.collective = Collective::broadcast, .input = own, .output = own, .root = 0, .algorithm = "direct"};
  };
  // Of operations of one shape the second is the first that lends.
  support::on_threads(2, [&](Rank rank) { ranks[rank]->run(broadcast(rank == 0 ? values : std::span(received))); });
  Work sending = ranks[0]->start(broadcast(values));
  EXPECT_FALSE(sending.wait_for(10ms)) << "rank 1 has not called it yet";
  ranks[0]->abort("enough");
  std::ranges::fill(values, -1.0f);
  refusal([&] { sending.wait(); }, ErrorKind::aborted);
  EXPECT_THAT(refusal([&] { ranks[1]->run(broadcast(received)); }, ErrorKind::peer_lost),
              HasSubstr("rank 0 gave up before the memory that it lends had been read"));
}

// Nor after an error that tells of a failure, though it is another call's.
TEST(FailureNewsTest, NothingReadsMemoryAfterARefusal) {
  auto transports = loopback_world(2);
  const auto engine =
      std::make_shared<engine::Engine>(std::move(transports[0]), engine::EngineOptions{.background_progress = false});
  const auto other = Communicator::over(std::move(transports[1]), {.timeout = 20s});
  std::vector<float> sent = {1, 2}, received(2);
  const auto sending = engine->start_send(ConstTypedSpan(sent), 1, 99, 20s);
  engine->fail({ErrorKind::aborted, "news of another rank"});
  EXPECT_THAT(refusal([&] { engine->start_send(ConstTypedSpan(received), 1, 98, 20s); }, ErrorKind::aborted),
              HasSubstr("news of another rank"));
  sent = {3, 4};
  engine->wait(*sending, 20s);
  other->recv(received, 0, 99);
  EXPECT_THAT(received, ElementsAre(1, 2));
}

// Behind it nobody knows where the next message begins.
TEST(FailureNewsTest, AMessageThatDoesNotFitEndsTheLookAtItsLink) {
  const auto ranks = two_ranks();
  const std::vector<float> sent = {1, 2, 3};
  std::vector<float> shorter(2), behind(3);
  Work unfit = ranks[0]->start_recv(shorter, 1, 98);
  Work next = ranks[0]->start_recv(behind, 1, 99);
  ranks[1]->send(sent, 0, 98);
  ranks[1]->send(sent, 0, 99);
  ranks[0]->abort("enough");
  EXPECT_THAT(refusal([&] { unfit.wait(); }, ErrorKind::aborted), HasSubstr("enough"));
  EXPECT_THAT(refusal([&] { next.wait(); }, ErrorKind::aborted), HasSubstr("enough"));
}

TEST(FailureNewsTest, ACollectiveThatTheOthersHaveEndedEnds) {
  const auto ranks = two_ranks();
  std::vector<float> ours = {1, 2}, theirs = {3, 4}, next = {5, 6};
  Work sum = ranks[0]->start({.input = ours, .output = ours});
  Work lacking = ranks[0]->start({.input = next, .output = next});
  EXPECT_FALSE(sum.wait_for(10ms)) << "rank 1 has not called it yet";
  ranks[1]->all_reduce(theirs);
  ranks[0]->abort("enough");
  sum.wait();
  EXPECT_THAT(ours, ElementsAre(4, 6));
  EXPECT_THAT(refusal([&] { lacking.wait(); }, ErrorKind::aborted), HasSubstr("enough"));
}

}  // namespace
}  // namespace ranvier
