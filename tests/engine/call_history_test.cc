#include "engine/call_history.h"

#include <gmock/gmock.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

namespace ranvier::engine {
namespace {

using testing::HasSubstr;
using Verdict = CallHistory::Verdict;

CallStamp stamp(Collective collective, Rank root, std::uint64_t size = 64) {
  return CallStamp::of(
      {.collective = collective, .dtype = DType::f32, .root_or_dims = static_cast<std::uint32_t>(root), .size = size});
}

Verdict compare(const CallHistory& own, const CallHistory& other) {
  const auto [count, digest] = other.now();
  return own.compare(count, digest);
}

TEST(CallHistory, TellsWhatWasBeforeACall) {
  CallHistory history(2);
  const CallStamp call = stamp(Collective::broadcast, 0);
  EXPECT_EQ(history.add(call).count, 0U);
  const auto before = history.add(call);
  EXPECT_EQ(before.count, 1U);
  EXPECT_NE(before.digest, 0U);
  EXPECT_EQ(history.now().count, 2U);
  EXPECT_EQ(history.claim().last_call(), "broadcast #1 of f32 with 64 elements, root 0");
}

TEST(CallHistory, EveryPartOfACallCounts) {
  const MessageHeader call{.collective = Collective::reduce, .dtype = DType::f32, .root_or_dims = 1, .size = 64};
  std::vector<MessageHeader> others(7, call);
  others[0].collective = Collective::broadcast;
  others[1].dtype = DType::f64;
  others[2].op = ReduceOp::max;
  others[3].root_or_dims = 2;
  others[4].size = 65;
  others[5].label.element = 1;
  others[6].label.shape = 1;
  for (const MessageHeader& other : others)
    EXPECT_NE(CallStamp::of(call).fingerprint, CallStamp::of(other).fingerprint);
  const MessageHeader exchange{.collective = Collective::all_to_all, .dtype = DType::f32, .size = 64};
  MessageHeader elsewhere = exchange;
  elsewhere.size = 65;
  elsewhere.label.shape = 1;
  EXPECT_EQ(CallStamp::of(exchange).fingerprint, CallStamp::of(elsewhere).fingerprint);
}

// One call that differs, or two in another order, show for ever.
TEST(CallHistory, OnceDifferentIsAlwaysDifferent) {
  std::mt19937 random(1);
  for (int attempt = 0; attempt < 1000; ++attempt) {
    CallHistory ours(2);
    CallHistory theirs(2);
    const auto both = [&](unsigned long calls) {
      for (unsigned long i = 0; i < calls; ++i) {
        const CallStamp call = stamp(static_cast<Collective>(random() % 10), static_cast<Rank>(random() % 3));
        ours.add(call);
        theirs.add(call);
      }
    };
    both(random() % 300);
    EXPECT_EQ(compare(ours, theirs), Verdict::alike);
    const CallStamp first = stamp(Collective::broadcast, 0);
    const CallStamp second = stamp(Collective::broadcast, 1);
    ours.add(first);
    theirs.add(second);
    if (attempt % 2 == 0) {
      ours.add(second);
      theirs.add(first);
    }
    both(random() % 300);
    EXPECT_EQ(compare(ours, theirs), Verdict::different);
  }
}

TEST(CallHistory, ComparesWithARankThatIsBehindAndNotWithOneThatIsAhead) {
  CallHistory ahead(2);
  CallHistory behind(2);
  CallHistory other(2);
  for (int i = 0; i < 5; ++i) {
    const CallStamp call = stamp(Collective::barrier, 0);
    ahead.add(call);
    behind.add(call);
    other.add(i == 2 ? stamp(Collective::broadcast, 0) : call);
  }
  for (int i = 0; i < 100; ++i) ahead.add(stamp(Collective::barrier, 0));
  EXPECT_EQ(compare(ahead, behind), Verdict::alike);
  EXPECT_EQ(compare(ahead, other), Verdict::different);
  EXPECT_EQ(compare(behind, ahead), Verdict::unknown);
  for (std::size_t i = 0; i < CallHistory::capacity; ++i) ahead.add(stamp(Collective::barrier, 0));
  EXPECT_EQ(compare(ahead, other), Verdict::unknown) << "long ago";
}

TEST(CallHistory, SaysWhichCallsDiffer) {
  CallHistory ours(3);
  CallHistory theirs(3);
  for (int i = 0; i < 4; ++i) {
    ours.add(stamp(Collective::barrier, 0));
    theirs.add(stamp(Collective::barrier, 0));
  }
  ours.add(stamp(Collective::broadcast, 0));
  theirs.add(stamp(Collective::broadcast, 2));
  const Error last = ours.divergence(0, 2, theirs.claim(), 4);
  EXPECT_EQ(last.kind(), ErrorKind::mismatch);
  EXPECT_EQ(last.culprit(), 2);
  EXPECT_THAT(last.what(), HasSubstr("rank 0 called broadcast #4 of f32 with 64 elements, root 0, and rank 2 called "
                                     "broadcast #4 of f32 with 64 elements, root 2"));
  ours.add(stamp(Collective::barrier, 0));
  theirs.add(stamp(Collective::barrier, 0));
  const Error earlier = ours.divergence(0, 2, theirs.claim(), 4);
  EXPECT_THAT(earlier.what(), HasSubstr("rank 0 and rank 2 have called different collectives up to barrier #5"));
  EXPECT_THAT(earlier.what(), HasSubstr("they agree up to #3"));
  EXPECT_THAT(earlier.what(), HasSubstr("broadcast #4"));
}

TEST(CallHistory, SaysWhichShapesAndTypesDiffer) {
  const auto type = [](std::uint8_t number) { return "type " + std::to_string(number); };
  CallHistory ours(2, {.element = type});
  CallHistory theirs(2);
  const MessageHeader gather{.collective = Collective::gather, .label = {.element = 26, .shape = 0xFFFF}, .size = 6};
  MessageHeader other = gather;
  other.label = {.element = 255 - 1, .shape = 1};
  ours.add(CallStamp::of(gather));
  theirs.add(CallStamp::of(other));
  EXPECT_THAT(
      ours.divergence(0, 1, theirs.claim(), 0).what(),
      HasSubstr("gather #0 of u8 with 6 elements of each rank, root 0, rank 0 with elements of type 26 and rank "
                "1 of type 254, and the shapes of rank 0 and rank 1 differ; "));
}

// Where one rank has met the others already, and another is still about to end that.
TEST(CallHistory, BeginsAnewWhenTheRanksHaveMet) {
  CallHistory early(2);
  CallHistory late(2);
  for (CallHistory* each : {&early, &late}) {
    each->restart(first_of_meeting);
    each->add(stamp(Collective::barrier, 0));
    EXPECT_THAT(each->claim().last_call(), HasSubstr("barrier #0 of the meeting"));
  }
  early.restart(0);
  EXPECT_NE(compare(early, late), Verdict::different);
  EXPECT_NE(compare(late, early), Verdict::different);
  early.add(stamp(Collective::broadcast, 0));
  EXPECT_EQ(compare(early, late), Verdict::unknown);
  EXPECT_NE(compare(late, early), Verdict::different);
  late.restart(0);
  late.add(stamp(Collective::broadcast, 1));
  EXPECT_EQ(compare(early, late), Verdict::different);
  EXPECT_THAT(
      late.divergence(1, 0, early.claim(), first_of_meeting + 1).what(),
      HasSubstr("rank 1 called broadcast #0 of f32 with 64 elements, root 1, and rank 0 called broadcast #0 of"));
  EXPECT_EQ(late.since(1, first_of_meeting + 1).find("agree"), std::string::npos);
}

// Calls from several threads: each has a number of its own, and the digest before it is what was added before.
TEST(CallHistory, IsAddedToByManyThreads) {
  CallHistory history(2);
  constexpr std::uint32_t each = 20'000;
  std::atomic<std::uint64_t> numbers = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      const CallStamp call = stamp(Collective::barrier, 0);
      for (std::uint32_t n = 0; n < each; ++n) {
        numbers += history.add(call).count;
        history.claim().last_call();
      }
    });
  for (std::thread& thread : threads) thread.join();
  const std::uint64_t total = 3 * each;
  EXPECT_EQ(numbers, total * (total - 1) / 2);
  CallHistory alone(2);
  for (std::uint64_t n = 0; n < total; ++n) alone.add(stamp(Collective::barrier, 0));
  EXPECT_EQ(compare(history, alone), Verdict::alike);
}

}  // namespace
}  // namespace ranvier::engine
