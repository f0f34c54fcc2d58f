// A call of gRPC without its library, at random: whatever the wire takes, and however the other side lets it send and
// cuts what it says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <utility>

#include "transport/http2_words.h"

namespace ranvier::transport {
namespace {

using namespace http2;
using testing::StartsWith;

// Another implementation of HTTP/2, by the letter: takes what a call says and checks it against what it allows, which
// is little, and changes.
class Peer {
 public:
  explicit Peer(unsigned seed) : random_(seed) {}

  void hear(const std::string& words) {
    heard_ += words;
    if (!has_preface_ && heard_.size() >= preface.size()) {
      EXPECT_THAT(heard_, StartsWith(std::string(preface)));
      heard_.erase(0, preface.size());
      has_preface_ = true;
    }
    while (has_preface_ && heard_.size() >= 9 && heard_.size() >= 9 + number(0, 3)) {
      const std::size_t size = number(0, 3), type = number(3, 1), flags = number(4, 1);
      if (type == data) take(heard_.substr(9, size));
      if (type == ping && flags == ack) ++pongs_;
      if (type == settings && flags == ack) ++acknowledged_;
      heard_.erase(0, 9 + size);
    }
  }

  // Something that it may say now.
  std::string say() {
    switch (some(0, 5)) {
      case 0: {
        const auto size = static_cast<std::int64_t>(some(0, 3000));
        call_window_ += size - std::exchange(initial_window_, size);
        ++said_settings_;
        return frame(settings, 0, 0, setting(4, static_cast<std::size_t>(size)) + setting(5, some(16'384, largest_)));
      }
      case 1:
        ++pings_;
        return frame(ping, 0, 0, "12345678");
      case 2:
        return grant(1, call_window_);
      default:
        return grant(0, connection_window_);
    }
  }
  static std::string first_words() {
    return frame(settings, 0, 0, "") + frame(headers, end_headers, 1, "\x88") + frame(data, 0, 1, message("welcome"));
  }

  const std::string& content() const { return content_; }
  bool has_all_answers() const { return pongs_ == pings_ && acknowledged_ == said_settings_ + 1; }

 private:
  std::size_t some(std::size_t least, std::size_t most) {
    return std::uniform_int_distribution<std::size_t>(least, most)(random_);
  }
  std::size_t number(std::size_t at, std::size_t bytes) const {
    std::size_t value = 0;
    for (; bytes > 0; --bytes) value = value << 8 | static_cast<unsigned char>(heard_[at++]);
    return value;
  }
  std::string grant(std::size_t stream, std::int64_t& window) {
    const std::size_t more = some(1, 5000);
    window += static_cast<std::int64_t>(more);
    return frame(update, 0, static_cast<unsigned>(stream), big_endian(more, 4));
  }
  // Of the call's window a frame may take more than is left, which was begun before that was made smaller.
  void take(const std::string& payload) {
    const auto size = static_cast<std::int64_t>(payload.size());
    EXPECT_LE(size, connection_window_);
    EXPECT_LE(payload.size(), largest_);
    connection_window_ -= size;
    call_window_ -= size;
    ASSERT_GE(payload.size(), 6U);
    std::size_t length = 0;
    for (int i = 1; i < 5; ++i) length = length << 8 | static_cast<unsigned char>(payload[static_cast<std::size_t>(i)]);
    EXPECT_EQ(length, payload.size() - 5);
    content_ += payload.substr(5);
  }

  std::mt19937 random_;
  std::string heard_, content_;
  bool has_preface_ = false;
  std::int64_t connection_window_ = 65'535, call_window_ = 65'535, initial_window_ = 65'535;
  static constexpr std::size_t largest_ = 20'000;
  int pings_ = 0, pongs_ = 0, acknowledged_ = 0, said_settings_ = 0;
};

TEST(Http2Call, SendsAllOverAWireThatTakesLittleToAPeerThatLetsSendLittle) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    const auto some = [&random](std::size_t least, std::size_t most) {
      return std::uniform_int_distribution<std::size_t>(least, most)(random);
    };
    std::string content(300'000, '\0');
    for (char& each : content) each = static_cast<char>(random());
    Http2Call call(CallRole::caller, false);
    Peer peer(seed);
    heard(call, peer.first_words());
    std::size_t sent = 0;
    int turns = 0;
    for (; (sent < content.size() || !call.unsent().empty()) && turns < 200'000; ++turns) {
      std::string wire;
      if (sent < content.size()) {
        const std::string_view offered = std::string_view(content).substr(sent, some(1, 40'000));
        sent += send(call, offered, wire, some(0, 1) * some(0, 3) * some(0, 9000) + some(0, 20));
      } else {
        wire = said(call, some(1, 20));
      }
      peer.hear(wire);
      if (some(0, 2) == 0 && sent < content.size()) heard(call, peer.say(), some(1, 30));
      ASSERT_FALSE(call.broken());
    }
    peer.hear(said(call));
    EXPECT_TRUE(peer.content() == content) << peer.content().size() << " of " << content.size() << ", seed " << seed;
    EXPECT_TRUE(peer.has_all_answers()) << seed;
  }
}

// However the other side cuts it, and whatever it says in between; now and then nobody wants it yet.
TEST(Http2Call, TakesAllThatComesInWhateverFrames) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    const auto some = [&random](std::size_t least, std::size_t most) {
      return std::uniform_int_distribution<std::size_t>(least, most)(random);
    };
    std::string content(300'000, '\0'), stream;
    for (char& each : content) each = static_cast<char>(random());
    for (std::size_t at = 0, size = 0; at < content.size(); at += size) {
      size = some(0, 1) * some(0, 50'000) + some(0, 9);
      stream += message(content.substr(at, size));
    }
    std::string words = opening() + frame(data, 0, 1, message("the token"));
    for (std::size_t at = 0, size = 0; at < stream.size(); at += size) {
      size = some(0, 1) * some(0, 30'000) + some(0, 9);
      const std::string part = stream.substr(at, size);
      const std::size_t padding = some(0, 9);
      words += padding < 5 ? frame(data, 0, 1, part)
                           : frame(data, padded, 1, big_endian(padding, 1) + part + std::string(padding, '.'));
      if (some(0, 3) == 0) words += frame(ping, 0, 0, "12345678");
      if (some(0, 3) == 0) words += frame(update, 0, 1, big_endian(1, 4));
    }
    words += frame(data, end_stream, 1, "");
    Http2Call call(CallRole::called, false);
    const std::size_t first = opening().size() + 9 + 5 + 9;
    std::string got = heard(call, words.substr(0, first)), wire;
    send(call, "welcome", wire);
    for (std::size_t at = first, size = 0; at < words.size() && !call.broken(); at += size) {
      size = some(1, 20'000);
      if (some(0, 4) == 0) {
        const Http2Call::Room room = call.room({});
        size = std::min({size, room.words.size(), words.size() - at});
        std::memcpy(room.words.data(), words.data() + at, size);
        call.arrived(size);
        call.put_aside();
      } else {
        got += heard(call, std::string_view(words).substr(at, size), some(1, 9000), some(1, 60'000));
      }
      said(call);
    }
    std::string rest(content.size(), '\0');
    rest.resize(call.take(std::as_writable_bytes(std::span(rest))));
    got += rest;
    EXPECT_TRUE(got == "the token" + content) << got.size() << ", seed " << seed;
    EXPECT_TRUE(call.ended());
    EXPECT_FALSE(call.broken());
  }
}

}  // namespace
}  // namespace ranvier::transport
