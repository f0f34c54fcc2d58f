// A call of gRPC without its library: what it writes, what it takes from whoever, and where it ends.
#include "transport/http2_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace ranvier::transport {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr std::string_view preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr unsigned data = 0, headers = 1, reset = 3, settings = 4, push_promise = 5, ping = 6, go_away = 7, update = 8;
constexpr unsigned ack = 1, end_stream = 1, end_headers = 4, padded = 8;

ConstBytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string big_endian(std::size_t value, int bytes) {
  std::string text;
  while (bytes-- > 0) text += static_cast<char>(value >> 8 * bytes);
  return text;
}
std::string frame(unsigned type, unsigned flags, unsigned stream, const std::string& content) {
  return big_endian(content.size(), 3) + big_endian(type, 1) + big_endian(flags, 1) + big_endian(stream, 4) + content;
}
std::string message(const std::string& content) { return big_endian(0, 1) + big_endian(content.size(), 4) + content; }
std::string setting(unsigned name, std::size_t value) { return big_endian(name, 2) + big_endian(value, 4); }

// Of somebody who calls, with headers that say nothing.
std::string opening() {
  return std::string(preface) + frame(settings, 0, 0, "") + frame(headers, end_headers, 1, "\x83");
}

// What there is to be sent, at most so many bytes of it.
std::string said(Http2Call& call, std::size_t most = std::string::npos) {
  const ConstBytes words = call.unsent().first(std::min(call.unsent().size(), most));
  std::string text(reinterpret_cast<const char*>(words.data()), words.size());
  call.sent(words.size());
  return text;
}

// What is taken of what arrives, a part at a time.
std::string heard(Http2Call& call, std::string_view words, std::size_t part = 4096) {
  std::string text;
  do {
    const Bytes space = call.space();
    const std::size_t bytes = std::min({space.size(), part, words.size()});
    std::memcpy(space.data(), words.data(), bytes);
    call.arrived(bytes);
    words.remove_prefix(bytes);
    std::string into(4096, '\0');
    into.resize(call.take(std::as_writable_bytes(std::span(into))));
    text += into;
  } while (!words.empty() && !call.broken() && !call.ended());
  return text;
}

struct Pair {
  Http2Call caller{CallRole::caller, false}, called{CallRole::called, false};

  // All that is sent arrives, in parts.
  void settle(std::string& at_caller, std::string& at_called, std::size_t part = 4096) {
    while (!caller.unsent().empty() || !called.unsent().empty()) {
      at_called += heard(called, said(caller, part), part);
      at_caller += heard(caller, said(called, part), part);
    }
  }
};

TEST(Http2Call, CarriesBothWaysWhateverThePartsInWhichItArrives) {
  for (const std::size_t part : {1U, 2U, 7U, 100U, 4096U}) {
    Pair pair;
    std::string at_caller, at_called;
    EXPECT_EQ(pair.caller.send(bytes_of("hel"), bytes_of("lo")), 5U);
    pair.settle(at_caller, at_called, part);
    EXPECT_EQ(at_called, "hello");
    EXPECT_EQ(pair.called.send(bytes_of("welcome"), {}), 7U);
    pair.settle(at_caller, at_called, part);
    EXPECT_EQ(at_caller, "welcome");
    EXPECT_EQ(pair.caller.send({}, bytes_of("!")), 1U);
    pair.called.end();
    pair.settle(at_caller, at_called, part);
    EXPECT_EQ(at_called, "hello!");
    EXPECT_TRUE(pair.caller.ended());
    EXPECT_FALSE(pair.called.ended()) << "the other way is still open";
    EXPECT_EQ(pair.caller.send({}, bytes_of("?")), 1U);
    pair.caller.end();
    EXPECT_EQ(pair.caller.send({}, bytes_of("?")), 0U);
    pair.settle(at_caller, at_called, part);
    EXPECT_EQ(at_called, "hello!?");
    EXPECT_TRUE(pair.called.ended());
    EXPECT_FALSE(pair.caller.broken() || pair.called.broken());
  }
}

// Windows of 16 MiB are filled, and opened again, some times over.
TEST(Http2Call, CarriesMoreThanAWindow) {
  Pair pair;
  std::string ignored, at_called;
  pair.caller.send({}, bytes_of("x"));
  pair.settle(ignored, at_called);
  pair.called.send({}, bytes_of("y"));
  pair.settle(ignored, at_called);
  const std::string much(1 << 20, 'z');
  std::size_t sent = 0, got = 0;
  for (const std::size_t all = std::size_t{50} << 20; sent < all;) {
    const std::size_t taken = pair.caller.send({}, bytes_of(much));
    ASSERT_GT(taken, 0U) << "after " << sent;
    sent += taken;
    at_called.clear();
    pair.settle(ignored, at_called);
    got += at_called.size();
  }
  EXPECT_EQ(got, sent);
  EXPECT_FALSE(pair.caller.broken() || pair.called.broken());
}

TEST(Http2Call, SendsNoMoreThanTheOtherSideTakes) {
  Http2Call call(CallRole::caller, false);
  const std::string much(100'000, 'z');
  std::size_t sent = 0;
  while (const std::size_t taken = call.send({}, bytes_of(much))) sent += taken;
  EXPECT_EQ(sent, 65'535U - 5 * 4) << "four frames, in the window that everybody begins with";
  heard(call, frame(settings, 0, 0, setting(4, 65'535 + 1000)));
  EXPECT_EQ(call.send({}, bytes_of(much)), 0U) << "that is of the call, and the connection's is full";
  heard(call, frame(update, 0, 0, big_endian(100, 4)));
  EXPECT_EQ(call.send({}, bytes_of(much)), 95U);
  heard(call, frame(settings, 0, 0, setting(4, 1000)) + frame(update, 0, 0, big_endian(1000, 4)));
  EXPECT_EQ(call.send({}, bytes_of(much)), 0U) << "of the call it is below 0";
  EXPECT_FALSE(call.broken());
}

// By the bytes of RFC 9113, RFC 7541 and gRPC's description of itself: the preface, settings, request, one message.
TEST(Http2Call, SaysWhatGrpcSays) {
  for (const bool inside_tls : {false, true}) {
    Http2Call call(CallRole::caller, inside_tls);
    call.send({}, bytes_of("hello"));
    const std::string words = said(call);
    const std::string request = std::string("\x83") + (inside_tls ? "\x87" : "\x86") +
                                "\x04\x18/ranvier.Control/Connect" + "\x01\x07ranvier" + std::string("\0\x02", 2) +
                                "te" + "\x08trailers" + "\x0f\x10" + "\x10" + "application/grpc";
    EXPECT_THAT(words, StartsWith(std::string(preface) +
                                  frame(settings, 0, 0, setting(1, 0) + setting(2, 0) + setting(4, 16 << 20))));
    EXPECT_THAT(words,
                testing::EndsWith(frame(headers, end_headers, 1, request) + frame(data, 0, 1, message("hello"))));
    call.end();
    EXPECT_EQ(said(call), frame(data, end_stream, 1, ""));
  }
  Http2Call call(CallRole::called, false);
  heard(call, opening() + frame(data, 0, 1, message("hello")));
  call.send({}, bytes_of("welcome"));
  call.end();
  const std::string words = said(call);
  EXPECT_THAT(words, StartsWith(frame(settings, 0, 0, setting(1, 0) + setting(4, 16 << 20))));
  EXPECT_THAT(words, HasSubstr(frame(settings, ack, 0, "")));
  const std::string answer = "\x88\x0f\x10\x10" + std::string("application/grpc");
  EXPECT_THAT(words, HasSubstr(frame(headers, end_headers, 1, answer) + frame(data, 0, 1, message("welcome"))));
  const std::string status = std::string("\0\x0b", 2) + "grpc-status\x01" + "0";
  EXPECT_THAT(words, testing::EndsWith(frame(headers, end_headers | end_stream, 1, status)));
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
      hello + big_endian(16'385, 3) + big_endian(0, 6),
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
  ASSERT_EQ(call.send({}, bytes_of("welcome")), 7U);
  std::string much;
  for (int i = 0; i < 1000; ++i) much += frame(data, 0, 1, message("news"));
  EXPECT_EQ(heard(call, much).size(), 4000U);
  EXPECT_FALSE(call.broken());
}

TEST(Http2Call, QuestionsThatNobodyReadsTheAnswersOfEndIt) {
  Http2Call call(CallRole::called, false);
  heard(call, opening() + frame(data, 0, 1, message("the token")));
  call.send({}, bytes_of("welcome"));
  for (int i = 0; i < 100'000 && !call.broken(); ++i) heard(call, frame(ping, 0, 0, "12345678"));
  EXPECT_TRUE(call.broken());
  EXPECT_LT(call.unsent().size(), std::size_t{1} << 20);
}

}  // namespace
}  // namespace ranvier::transport
