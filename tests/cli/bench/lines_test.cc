#include "bench/lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "bench/peer.h"
#include "ranvier/error.h"

namespace ranvier::bench {
namespace {

using namespace std::chrono_literals;

struct Pair {
  Lines here;
  Lines there;
};
Pair connected() {
  const Listener listener = listen_for_lines();
  Lines there = connect_lines(listener.name);
  auto here = accept_lines(listener, 1s);
  return {std::move(*here), std::move(there)};
}

TEST(Lines, ArriveWholeAndInOrder) {
  auto [here, there] = connected();
  const std::string long_line(3000, 'x');
  for (const auto& line : {std::string("one"), std::string(), long_line}) there.write(line);
  EXPECT_EQ(here.read(), "one");
  EXPECT_EQ(here.read(), "");
  EXPECT_EQ(here.read(), long_line);
}

TEST(Lines, EndWithTheOtherSide) {
  auto [here, there] = connected();
  there.write("last");
  { const Lines gone = std::move(there); }
  EXPECT_EQ(here.read(), "last");
  EXPECT_EQ(here.read(), std::nullopt);
}

TEST(Lines, MayEndInOneDirection) {
  auto [here, there] = connected();
  here.finish();
  EXPECT_EQ(there.read(), std::nullopt);
  there.write("still there");
  EXPECT_EQ(here.read(), "still there");
}

TEST(Lines, WaitNoLongerThanTheirDeadline) {
  auto [here, there] = connected();
  try {
    here.read(std::chrono::steady_clock::now() + 10ms);
    FAIL() << "nobody wrote";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::timeout);
  }
}

TEST(Lines, RefuseAnEndlessOne) {
  auto [here, there] = connected();
  std::string flood(8000, 'x');
  there.write(flood);
  EXPECT_THROW(here.read(std::chrono::steady_clock::now() + 1s), Error);
}

TEST(Lines, NamesOfSocketsVanishWithThem) {
  std::string name;
  { name = listen_for_lines().name; }
  EXPECT_THROW(connect_lines(name), Error);
}

TEST(Reply, IsTheSameAfterItsLineWasRead) {
  const Reply done = reply_from_line(to_line(Reply{.seconds = 1.25e-7, .wrong = 3}));
  EXPECT_DOUBLE_EQ(done.seconds, 1.25e-7);
  EXPECT_EQ(done.wrong, 3);
  const Reply more = reply_from_line(to_line(Reply{.seconds = 1,
                                                   .cpu_seconds = 0.5,
                                                   .losses = {.due = 7, .missing = 2},
                                                   .packets = {.sent = 9, .lost = 3, .refused = 1},
                                                   .kernel = {.sent = 8, .lost = 4, .refused = 2},
                                                   .network = 77,
                                                   .error = 0.0625,
                                                   .fell_back = true}));
  EXPECT_EQ(more.losses.missing, 2);
  EXPECT_EQ(more.packets.sent, 9);
  EXPECT_EQ(more.packets.lost, 3);
  EXPECT_EQ(more.packets.refused, 1);
  EXPECT_EQ(more.kernel.sent, 8);
  EXPECT_EQ(more.kernel.lost, 4);
  EXPECT_EQ(more.kernel.refused, 2);
  EXPECT_EQ(more.network, 77);
  EXPECT_DOUBLE_EQ(more.error, 0.0625);
  EXPECT_TRUE(more.fell_back);
  EXPECT_EQ(reply_from_line(to_line(Reply{.refusal = "has no\nbf16"})).refusal, "has no bf16");
  EXPECT_THROW(reply_from_line("perhaps"), Error);
  EXPECT_THROW(reply_from_line("done soon"), Error);
}

Error failure_after(const Error& error) {
  const std::string line = failure_line(error);
  EXPECT_LE(line.size(), Lines::longest);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  try {
    reply_from_line(line);
  } catch (const Error& problem) {
    return problem;
  }
  ADD_FAILURE() << "a failure was taken for an answer";
  return error;
}

TEST(Failure, KeepsItsKindSentenceAndFlightRecord) {
  for (const ErrorKind kind : {ErrorKind::usage, ErrorKind::config, ErrorKind::peer_lost, ErrorKind::internal}) {
    const std::string record = "#1 all_reduce: done\n#2 barrier: failed\n";
    const Error bare = failure_after(Error(kind, "the link\tbroke,\nand so on"));
    EXPECT_EQ(bare.kind(), kind);
    EXPECT_STREQ(bare.what(), "the link broke, and so on");
    EXPECT_EQ(bare.flight_record(), "");
    EXPECT_EQ(failure_after(Error(kind, "the link broke").with_flight_record(record)).flight_record(), record);
  }
}

TEST(Failure, TellsTheNewestOperationsWhereThereIsNoRoomForAll) {
  const std::string old(3000, 'o'), last(2000, 'l');
  const Error error = Error(ErrorKind::timeout, "too late").with_flight_record(old + '\n' + last + '\n');
  EXPECT_EQ(failure_after(error).flight_record(), last + '\n');
  EXPECT_EQ(failure_after(error.with_flight_record(old + old)).flight_record(), "");
  EXPECT_THAT(failure_after(Error(ErrorKind::timeout, old + old).with_flight_record("#1")).what(),
              testing::StartsWith(old));
}

TEST(Failure, OfWhomeverSpeaksOtherwiseIsAnswered) {
  EXPECT_FALSE(failure_of("failure is no option"));
  EXPECT_EQ(failure_of("failed")->kind(), ErrorKind::internal);
  EXPECT_STREQ(failure_of("failed what\tso")->what(), "so");
}

}  // namespace
}  // namespace ranvier::bench
