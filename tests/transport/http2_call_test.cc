// A call of gRPC without its library: what it writes, what it takes from whoever, and where it ends.
#include "transport/http2_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/http2_words.h"

namespace ranvier::transport {
namespace {

using namespace http2;

using testing::HasSubstr;
using testing::StartsWith;

struct Pair {
  Http2Call caller{CallRole::caller, false}, called{CallRole::called, false};
  std::string to_caller, to_called;  // on the wire
  std::string at_caller, at_called;  // what has come of it

  // All that is sent arrives, in parts.
  void settle(std::size_t part = 4096, std::size_t room = 4096) {
    for (;;) {
      to_called += said(caller, part);
      to_caller += said(called, part);
      if (to_called.empty() && to_caller.empty()) return;
      at_called += heard(called, std::exchange(to_called, {}), part, room);
      at_caller += heard(caller, std::exchange(to_caller, {}), part, room);
    }
  }
  bool broken() const { return caller.broken() || called.broken(); }
};

TEST(Http2Call, CarriesBothWaysWhateverThePartsInWhichItArrives) {
  for (const std::size_t part : {1U, 2U, 7U, 100U, 4096U})
    for (const std::size_t room : {1U, 3U, 4096U}) {
      Pair pair;
      EXPECT_EQ(send(pair.caller, "hello", pair.to_called), 5U);
      pair.settle(part, room);
      EXPECT_EQ(pair.at_called, "hello");
      EXPECT_EQ(send(pair.called, "welcome", pair.to_caller), 7U);
      pair.settle(part, room);
      EXPECT_EQ(pair.at_caller, "welcome");
      EXPECT_EQ(send(pair.caller, "!", pair.to_called), 1U);
      pair.called.end();
      pair.settle(part, room);
      EXPECT_EQ(pair.at_called, "hello!");
      EXPECT_TRUE(pair.caller.ended());
      EXPECT_FALSE(pair.called.ended()) << "the other way is still open";
      EXPECT_EQ(send(pair.caller, "?", pair.to_called), 1U);
      pair.caller.end();
      EXPECT_EQ(send(pair.caller, "?", pair.to_called), 0U);
      pair.settle(part, room);
      EXPECT_EQ(pair.at_called, "hello!?");
      EXPECT_TRUE(pair.called.ended());
      EXPECT_FALSE(pair.broken());
    }
}

// Each has heard of the other's limits.
void greet(Pair& pair) {
  send(pair.caller, "x", pair.to_called);
  pair.settle();
  send(pair.called, "y", pair.to_caller);
  pair.settle();
}

// Windows are filled, and opened again, some times over.
TEST(Http2Call, CarriesMoreThanAWindow) {
  Pair pair;
  greet(pair);
  const std::string much(1 << 20, 'z');
  std::size_t sent = 0, got = 0;
  for (const std::size_t all = std::size_t{3} * Http2Call::window; sent < all;) {
    const std::size_t taken = send(pair.caller, much, pair.to_called);
    ASSERT_EQ(taken, much.size()) << "after " << sent;
    sent += taken;
    pair.at_called.clear();
    pair.settle(1 << 20, 300'000);
    got += pair.at_called.size();
  }
  EXPECT_EQ(got, sent);
  EXPECT_FALSE(pair.broken());
}

TEST(Http2Call, SendsNoMoreThanTheOtherSideTakes) {
  Http2Call call(CallRole::caller, false);
  const std::string much(100'000, 'z');
  std::string wire;
  EXPECT_EQ(send(call, much, wire), 65'535U - 4 * 5) << "four frames, in the window that everybody begins with";
  heard(call, frame(settings, 0, 0, setting(4, 65'535 + 1000)));
  EXPECT_EQ(send(call, much, wire), 0U) << "that is of the call, and the connection's is full";
  heard(call, frame(update, 0, 0, big_endian(100, 4)));
  EXPECT_EQ(send(call, much, wire), 95U);
  heard(call, frame(settings, 0, 0, setting(4, 1000)) + frame(update, 0, 0, big_endian(1000, 4)));
  EXPECT_EQ(send(call, much, wire), 0U) << "of the call it is below 0";
  EXPECT_FALSE(call.broken());
}

// A slice and its header are one frame between ranks; of it the call writes no more than its head.
TEST(Http2Call, ASliceIsOneFrameAndItsContentStaysWhereItIs) {
  Pair pair;
  greet(pair);
  const std::size_t slice = (512 << 10) + 32;
  const Http2Call::Due due = pair.caller.due(slice);
  EXPECT_EQ(due.content, slice);
  EXPECT_EQ(text_of(due.words),
            big_endian(slice + 5, 3) + big_endian(0, 2) + big_endian(1, 4) + big_endian(0, 1) + big_endian(slice, 4));
  const std::size_t head = due.words.size();
  std::string into(slice + 10, '\0');
  const Bytes memory = std::as_writable_bytes(std::span(into));
  std::memcpy(pair.called.room(memory).words.data(), due.words.data(), head);
  EXPECT_EQ(pair.called.arrived(head), 0U);
  EXPECT_EQ(pair.called.take(memory), 0U);
  const Http2Call::Room room = pair.called.room(memory);
  EXPECT_EQ(room.content.data(), memory.data());
  EXPECT_EQ(room.content.size(), slice);
  EXPECT_GT(room.words.size(), 0U) << "the next frame's head comes behind it";
  EXPECT_TRUE(pair.called.room(memory.first(1000)).words.empty()) << "what comes behind that is content";
}

TEST(Http2Call, FramesAreNoLongerThanTheOtherSideTakes) {
  for (const std::size_t limit : {std::size_t{16'384}, std::size_t{100'000}, (std::size_t{1} << 24) - 1}) {
    Http2Call call(CallRole::caller, false);
    heard(call,
          frame(settings, 0, 0, setting(4, 1 << 30) + setting(5, limit)) + frame(update, 0, 0, big_endian(1 << 30, 4)));
    EXPECT_EQ(call.due(3 << 20).content, std::min(limit, Http2Call::most_frame) - 5);
  }
}

TEST(Http2Call, AFrameThatHasBegunIsEndedByWhateverIsOfferedNext) {
  Http2Call call(CallRole::caller, false);
  std::string wire;
  send(call, "hello", wire);
  wire.clear();
  EXPECT_EQ(send(call, "abcdef", wire, 14 + 2), 2U);
  EXPECT_TRUE(call.owes_content());
  heard(call, frame(settings, 0, 0, "") + frame(ping, 0, 0, "12345678"));
  EXPECT_TRUE(call.unsent().empty()) << "four bytes of content have to go before";
  EXPECT_EQ(send(call, "cd", wire), 2U);
  EXPECT_TRUE(call.unsent().empty());
  EXPECT_EQ(call.due(100).content, 2U);
  call.sent(0);
  EXPECT_EQ(send(call, "EF", wire), 2U);
  EXPECT_EQ(wire, frame(data, 0, 1, message("abcdEF")));
  EXPECT_FALSE(call.owes_content());
  EXPECT_EQ(said(call), frame(settings, ack, 0, "") + frame(ping, ack, 0, "12345678"));
  // A part of its head is a beginning, too.
  wire.clear();
  EXPECT_EQ(send(call, "ghi", wire, 1), 0U);
  EXPECT_TRUE(call.owes_content());
  wire += said(call);
  EXPECT_EQ(send(call, "GHIJ", wire), 4U);
  EXPECT_EQ(wire, frame(data, 0, 1, message("GHI")) + frame(data, 0, 1, message("J")));
}

TEST(Http2Call, AFrameOfWhichNothingHasGoneIsNone) {
  Http2Call call(CallRole::caller, false);
  std::string wire;
  send(call, "hello", wire);
  wire.clear();
  call.due(6);
  call.sent(0);
  EXPECT_FALSE(call.owes_content());
  EXPECT_TRUE(call.unsent().empty());
  EXPECT_EQ(send(call, "abc", wire), 3U);
  EXPECT_EQ(wire, frame(data, 0, 1, message("abc")));
}

TEST(Http2Call, CannotEndWithinAFrame) {
  Http2Call call(CallRole::caller, false);
  std::string wire;
  send(call, "hello", wire);
  send(call, "abcdef", wire, 14 + 2);
  call.end();
  EXPECT_TRUE(call.owes_content());
  EXPECT_TRUE(call.has_ended());
  EXPECT_TRUE(call.unsent().empty());
}

// By the bytes of RFC 9113, RFC 7541 and gRPC's description of itself: the preface, settings, request, one message.
TEST(Http2Call, SaysWhatGrpcSays) {
  const std::string limits = setting(4, Http2Call::window) + setting(5, Http2Call::most_frame);
  for (const bool inside_tls : {false, true}) {
    Http2Call call(CallRole::caller, inside_tls);
    std::string words;
    send(call, "hello", words);
    const std::string request = std::string("\x83") + (inside_tls ? "\x87" : "\x86") +
                                "\x04\x16/ranvier.Ranks/Connect" + "\x01\x07ranvier" + std::string("\0\x02", 2) + "te" +
                                "\x08trailers" + "\x0f\x10" + "\x10" + "application/grpc";
    EXPECT_THAT(words,
                StartsWith(std::string(preface) + frame(settings, 0, 0, setting(1, 0) + setting(2, 0) + limits)));
    EXPECT_THAT(words,
                testing::EndsWith(frame(headers, end_headers, 1, request) + frame(data, 0, 1, message("hello"))));
    call.end();
    EXPECT_EQ(said(call), frame(data, end_stream, 1, ""));
  }
  Http2Call call(CallRole::called, false);
  heard(call, opening() + frame(data, 0, 1, message("hello")));
  std::string words;
  send(call, "welcome", words);
  call.end();
  words += said(call);
  EXPECT_THAT(words, StartsWith(frame(settings, 0, 0, setting(1, 0) + limits)));
  EXPECT_THAT(words, HasSubstr(frame(settings, ack, 0, "")));
  const std::string answer = "\x88\x0f\x10\x10" + std::string("application/grpc");
  EXPECT_THAT(words, HasSubstr(frame(headers, end_headers, 1, answer) + frame(data, 0, 1, message("welcome"))));
  const std::string status = std::string("\0\x0b", 2) + "grpc-status\x01" + "0";
  EXPECT_THAT(words, testing::EndsWith(frame(headers, end_headers | end_stream, 1, status)));
}

// Who sends without receiving has to hear of leave to send more, behind content that nobody wants yet.
TEST(Http2Call, WindowsOpenBehindContentThatIsPutAside) {
  Http2Call call(CallRole::caller, false);
  std::string wire;
  const std::string much(100'000, 'z');
  EXPECT_LT(send(call, much, wire), much.size());
  said(call);
  const std::string words = frame(settings, 0, 0, setting(4, 200'000)) + frame(headers, end_headers, 1, "\x88") +
                            frame(data, 0, 1, message("for ") + message("later")) +
                            frame(update, 0, 0, big_endian(1000, 4));
  const Http2Call::Room room = call.room({});
  EXPECT_TRUE(room.content.empty());
  std::memcpy(room.words.data(), words.data(), words.size());
  EXPECT_EQ(call.arrived(words.size()), 0U);
  call.put_aside();
  EXPECT_EQ(send(call, much, wire), 995U);
  EXPECT_EQ(heard(call, frame(data, end_stream, 1, message(" on")), 4096, 2), "for later on");
  EXPECT_TRUE(call.ended());
}

TEST(Http2Call, LetsSendNoMoreThanWasTaken) {
  const std::string part = frame(data, 0, 1, message(std::string(Http2Call::most_frame - 5, 'z')));
  for (const bool takes : {true, false}) {
    Http2Call call(CallRole::called, false);
    heard(call, opening() + frame(data, 0, 1, message("the token")));
    std::string wire;
    send(call, "welcome", wire);
    std::size_t parts = 0;
    for (; parts < 100 && !call.broken(); ++parts)
      for (std::string_view rest = part; !rest.empty() && !call.broken();) {
        if (takes) {
          heard(call, std::exchange(rest, {}), 1 << 20, 1 << 16);
          continue;
        }
        const Http2Call::Room room = call.room({});
        const std::string_view now = rest.substr(0, room.words.size());
        std::memcpy(room.words.data(), now.data(), now.size());
        call.arrived(now.size());
        rest.remove_prefix(now.size());
        call.put_aside();
      }
    EXPECT_EQ(call.broken(), !takes);
    EXPECT_EQ(parts, takes ? 100 : Http2Call::window / Http2Call::most_frame);
    EXPECT_EQ(said(call).find(frame(update, 0, 1, "").substr(3, 6)) != std::string::npos, takes);
  }
}

// Whoever speaks gRPC or HTTP/2 otherwise: other ways to cut it, and frames that it does not need.
TEST(Http2Call, UnderstandsWhatItWouldNotSay) {
  const std::string hello = message("hello") + message("") + message(" there");
  std::string cut;
  for (const char each : hello) cut += frame(data, 0, 1, std::string(1, each));
  const std::vector<std::string> ways{
      frame(data, 0, 1, hello),
      cut,
      frame(data, padded, 1, "\x03" + hello + "...") + frame(data, padded, 1, std::string("\x02..", 3)),
      frame(data, 0, 1, "") + frame(data, 0, 1, hello),
      frame(2, 0, 1, "prior") + frame(99, 255, 7, "whatever") + frame(data, 0, 1, hello) + frame(go_away, 0, 0, "bye"),
      frame(settings, 0, 0, setting(77, 1) + setting(5, 20'000)) + frame(settings, ack, 0, "") +
          frame(data, 0, 1, hello),
      frame(9, end_headers, 1, "more") + frame(data, 0, 1, hello)};
  for (const std::string& way : ways) {
    Http2Call call(CallRole::called, false);
    EXPECT_EQ(heard(call, opening() + way), "hello there");
    EXPECT_FALSE(call.broken());
  }
  Http2Call call(CallRole::caller, false);
  said(call);
  EXPECT_EQ(heard(call, frame(settings, 0, 0, "") + frame(ping, 0, 0, "12345678") + frame(ping, ack, 0, "87654321")),
            "");
  EXPECT_EQ(said(call), frame(settings, ack, 0, "") + frame(ping, ack, 0, "12345678"));
  heard(call, frame(reset, 0, 1, big_endian(8, 4)));
  EXPECT_TRUE(call.ended());
  EXPECT_FALSE(call.broken());
}

TEST(Http2Call, GivesUpWhatIsNoHttp2) {
  const std::string hello = opening();
  const std::vector<std::string> wrong{
      "GET / HTTP/1.1\r\n\r\n",
      std::string(preface) + frame(ping, 0, 0, "12345678"),                      // before the settings
      std::string(preface) + frame(settings, 0, 0, "") + frame(data, 0, 1, ""),  // of no call
      hello + big_endian(Http2Call::most_frame + 1, 3) + big_endian(0, 6),
      hello + frame(settings, 0, 0, setting(5, 16'383)),
      hello + frame(settings, 0, 0, setting(5, 1 << 24)),
      hello + frame(data, end_stream, 1, "") + frame(data, 0, 1, ""),
      hello + frame(data, 0, 1, big_endian(0, 1) + big_endian((2 << 20) + 1, 4)),
      hello + frame(settings, 0, 0, "12345"),
      hello + frame(settings, 0, 1, ""),
      hello + frame(settings, ack, 0, setting(4, 1)),
      hello + frame(settings, 0, 0, setting(4, std::size_t{1} << 31)),
      hello + frame(settings, 0, 0, setting(4, (std::size_t{1} << 31) - 1)) + frame(update, 0, 1, big_endian(1, 4)),
      hello + frame(ping, 0, 0, "1234"),
      hello + frame(ping, 0, 1, "12345678"),
      hello + frame(update, 0, 0, "123"),
      hello + frame(update, 0, 0, big_endian(0, 4)),
      hello + frame(update, 0, 0, big_endian((std::size_t{1} << 31) - 1, 4)),
      hello + frame(update, 0, 3, big_endian(1, 4)),
      hello + frame(reset, 0, 3, big_endian(1, 4)),
      hello + frame(push_promise, 0, 1, "1234"),
      hello + frame(data, 0, 3, message("hello")),
      hello + frame(headers, end_headers, 3, "\x83"),
      hello + frame(data, 0, 1, "\x01" + message("hello")),  // compressed
      hello + frame(data, padded, 1, "\x05" + std::string(5, '.')).replace(9, 1, "\x06"),
      hello + frame(data, padded, 1, "")};
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    Http2Call call(CallRole::called, false);
    heard(call, wrong[i]);
    EXPECT_TRUE(call.broken()) << i;
    EXPECT_TRUE(call.unsent().empty()) << "it was answered";
  }
}

TEST(Http2Call, TakesLittleOfWhoHasProvedNothingAndSaysNothing) {
  for (const std::string& chatter :
       {frame(ping, 0, 0, "12345678"), frame(99, 0, 0, std::string(100, '.')), frame(data, 0, 1, message("hello"))}) {
    Http2Call call(CallRole::called, false);
    std::string words = opening();
    heard(call, words);
    while (!call.broken() && words.size() < 100'000) {
      heard(call, chatter);
      words += chatter;
    }
    EXPECT_GE(words.size(), Http2Call::most_unproved_bytes);
    EXPECT_LE(words.size(), Http2Call::most_unproved_bytes + chatter.size());
    EXPECT_TRUE(call.unsent().empty());
  }
  Http2Call call(CallRole::called, false);
  heard(call, opening() + frame(data, 0, 1, message("the token")));
  std::string wire, much;
  ASSERT_EQ(send(call, "welcome", wire), 7U);
  for (int i = 0; i < 1000; ++i) much += frame(data, 0, 1, message("news"));
  EXPECT_EQ(heard(call, much).size(), 4000U);
  EXPECT_FALSE(call.broken());
}

TEST(Http2Call, QuestionsThatNobodyReadsTheAnswersOfEndIt) {
  Http2Call call(CallRole::called, false);
  heard(call, opening() + frame(data, 0, 1, message("the token")));
  std::string wire;
  send(call, "welcome", wire);
  for (int i = 0; i < 100'000 && !call.broken(); ++i) heard(call, frame(ping, 0, 0, "12345678"));
  EXPECT_TRUE(call.broken());
  EXPECT_LT(call.unsent().size(), std::size_t{1} << 20);
}

}  // namespace
}  // namespace ranvier::transport
