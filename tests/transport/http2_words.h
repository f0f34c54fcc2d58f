// What is said in HTTP/2, for tests of a call: its frames, and both ends of a wire.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "transport/http2_call.h"

namespace ranvier::transport::http2 {

inline constexpr std::string_view preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
inline constexpr unsigned data = 0, headers = 1, reset = 3, settings = 4, push_promise = 5, ping = 6, go_away = 7,
                          update = 8;
inline constexpr unsigned ack = 1, end_stream = 1, end_headers = 4, padded = 8;

inline std::string big_endian(std::size_t value, int bytes) {
  std::string text;
  while (bytes-- > 0) text += static_cast<char>(value >> 8 * bytes);
  return text;
}
inline std::string frame(unsigned type, unsigned flags, unsigned stream, const std::string& content) {
  return big_endian(content.size(), 3) + big_endian(type, 1) + big_endian(flags, 1) + big_endian(stream, 4) + content;
}
inline std::string message(const std::string& content) {
  return big_endian(0, 1) + big_endian(content.size(), 4) + content;
}
inline std::string setting(unsigned name, std::size_t value) { return big_endian(name, 2) + big_endian(value, 4); }

// Of somebody who calls, with headers that say nothing.
inline std::string opening() {
  return std::string(preface) + frame(settings, 0, 0, "") + frame(headers, end_headers, 1, "\x83");
}

inline std::string text_of(ConstBytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// The words that wait, at most so many bytes of them.
inline std::string said(Http2Call& call, std::size_t most = std::string::npos) {
  const std::string words = text_of(call.unsent()).substr(0, most);
  call.sent(words.size());
  return words;
}

// Offers content until it is on the wire, the other side takes no more, or the wire has taken `most` bytes. How much of
// it was taken.
inline std::size_t send(Http2Call& call, std::string_view content, std::string& wire,
                        std::size_t most = std::string::npos) {
  const std::size_t offered = content.size();
  while (!content.empty() && most > 0) {
    const Http2Call::Due due = call.due(content.size());
    std::string next = text_of(due.words) + std::string(content.substr(0, due.content));
    next.resize(std::min(next.size(), most));
    wire += next;
    most -= next.size();
    content.remove_prefix(call.sent(next.size()));
    if (due.content == 0) break;
  }
  return offered - content.size();
}

// What is taken of what arrives, parts of it at a time into memory of so many bytes.
inline std::string heard(Http2Call& call, std::string_view words, std::size_t part = 4096, std::size_t room = 4096) {
  std::string text, into(room, '\0');
  for (bool full = false; (!words.empty() || full) && !call.broken();) {
    const Bytes memory = std::as_writable_bytes(std::span(into));
    std::size_t given = call.take(memory);
    if (given < room) {
      const Http2Call::Room space = call.room(memory.subspan(given));
      const std::string_view now = words.substr(0, std::min(part, space.content.size() + space.words.size()));
      const std::size_t direct = std::min(now.size(), space.content.size());
      const ConstBytes bytes = std::as_bytes(std::span(now));
      std::ranges::copy(bytes.first(direct), space.content.begin());
      std::ranges::copy(bytes.subspan(direct), space.words.begin());
      const std::size_t arrived = call.arrived(now.size());
      EXPECT_EQ(arrived, direct);
      given += arrived;
      words.remove_prefix(now.size());
      given += call.take(memory.subspan(given));
    }
    text += into.substr(0, given);
    full = given == room;
  }
  return text;
}

}  // namespace ranvier::transport::http2
