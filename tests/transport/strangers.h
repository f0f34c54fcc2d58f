// Programs that connect to a port of ranvier's and are no part of it.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/socket.h"

namespace ranvier::support {

// A connection to that port by somebody who is not a rank; none where it is refused.
inline Fd stranger(const std::string& ip, std::uint16_t port) {
  Fd socket = start_connect(*parse_address(ip, port), {});
  pollfd ready{socket.get(), POLLOUT, 0};
  if (socket && (poll(&ready, 1, 10'000) != 1 || connect_result(socket) != 0)) socket.reset();
  return socket;
}

// Whether the other end has closed the connection, or does so within `limit`.
inline bool is_shown_out(const Fd& socket, std::chrono::milliseconds limit = {}) {
  const auto until = std::chrono::steady_clock::now() + limit;
  for (std::array<char, 4096> ignored{};;) {
    const ssize_t got = recv(socket.get(), ignored.data(), ignored.size(), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return true;
    if (got < 0 && std::chrono::steady_clock::now() >= until) return false;
    pollfd ready{socket.get(), POLLIN, 0};
    if (got < 0) poll(&ready, 1, 1);
  }
}

// Calls of gRPC on one connection of HTTP/2 (RFC 9113), which nothing is done for that a library would do: it connects
// once, and what it begins it may leave.
class Http2Caller {
 public:
  explicit Http2Caller(Fd socket) : socket_(std::move(socket)) {
    say("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    say(frame(settings, 0, 0, ""));
  }

  const Fd& socket() const { return socket_; }
  std::size_t open() const { return open_.size(); }  // calls

  // Which it is.
  std::size_t begin(std::string_view path) {
    const std::size_t call = std::exchange(next_, next_ + 2);
    open_.insert(call);
    say(frame(headers, end_of_headers, call, request(path)));
    return call;
  }
  // Of less than 256 bytes.
  void send_message(std::size_t call, std::string_view message, bool is_last) {
    say(frame(data, is_last ? end_of_stream : 0, call,
              std::string(1, '\0') + big_endian(message.size(), 4) + std::string(message)));
  }

  // The beginning of a message of so many bytes.
  void send_part(std::size_t call, std::size_t message, std::string part) {
    constexpr std::size_t most = 16384;  // of a frame
    part = std::string(1, '\0') + big_endian(message, 4) + part;
    for (std::size_t first = 0; first < part.size(); first += most) say(frame(data, 0, call, part.substr(first, most)));
  }
  // Whether a ping is answered.
  bool is_heard(std::chrono::milliseconds limit) {
    const std::size_t before = pongs_;
    say(frame(ping, 0, 0, std::string(8, '?')));
    const auto until = std::chrono::steady_clock::now() + limit;
    while (pongs_ == before && std::chrono::steady_clock::now() < until && !is_closed())
      hear(std::chrono::milliseconds(5));
    return pongs_ > before;
  }

  // Takes in what comes within `limit`. How many calls have ended by it.
  std::size_t hear(std::chrono::milliseconds limit) {
    pollfd ready{socket_.get(), POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(limit.count())) != 1) return 0;
    std::array<char, 16384> more{};
    const ssize_t got = recv(socket_.get(), more.data(), more.size(), MSG_DONTWAIT);
    if (got > 0) heard_.append(more.data(), static_cast<std::size_t>(got));
    std::size_t ended = 0;
    for (; heard_.size() >= head_bytes && heard_.size() >= head_bytes + number(0, 3);
         heard_.erase(0, head_bytes + number(0, 3))) {
      const std::size_t type = number(3, 1), flags = number(4, 1), call = number(5, 4);
      if (type == data || type == headers) answers_[call] += heard_.substr(head_bytes, number(0, 3));
      if (type == reset || (type == headers && (flags & end_of_stream) != 0)) ended += open_.erase(call);
      if (type == settings && (flags & acknowledged) == 0) say(frame(settings, acknowledged, 0, ""));
      if (type == ping && (flags & acknowledged) != 0) ++pongs_;
      if (type == ping && (flags & acknowledged) == 0) say(frame(ping, acknowledged, 0, heard_.substr(head_bytes, 8)));
    }
    return ended;
  }

  // All that was said to the call, metadata and messages, once it has ended; empty where it does not, or the connection
  // does.
  std::string answer(std::size_t call, std::chrono::milliseconds limit) {
    const auto until = std::chrono::steady_clock::now() + limit;
    while (open_.contains(call)) {
      if (std::chrono::steady_clock::now() >= until || is_closed()) return {};
      hear(std::chrono::milliseconds(5));
    }
    return answers_[call];
  }

  bool is_closed() const {
    char next = 0;
    const ssize_t got = recv(socket_.get(), &next, 1, MSG_DONTWAIT | MSG_PEEK);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
  }

 private:
  static constexpr std::size_t data = 0, headers = 1, reset = 3, settings = 4, ping = 6;
  static constexpr std::size_t acknowledged = 1, end_of_stream = 1, end_of_headers = 4;
  static constexpr std::size_t head_bytes = 9;

  static std::string big_endian(std::size_t value, int bytes) {
    std::string text;
    while (bytes-- > 0) text += static_cast<char>(value >> 8 * bytes);
    return text;
  }
  static std::string frame(std::size_t type, std::size_t flags, std::size_t call, const std::string& content) {
    return big_endian(content.size(), 3) + big_endian(type, 1) + big_endian(flags, 1) + big_endian(call, 4) + content;
  }
  // By HPACK (RFC 7541): what the static table has, or names its first half of, and one header of neither.
  static std::string request(std::string_view path) {
    const auto text = [](std::string_view each) { return static_cast<char>(each.size()) + std::string(each); };
    return "\x83\x86\x04" + text(path) + "\x01" + text("ranvier") + "\x0f\x10" + text("application/grpc") +
           std::string(1, '\0') + text("te") + text("trailers");
  }
  std::size_t number(std::size_t at, std::size_t bytes) const {
    std::size_t value = 0;
    for (; bytes > 0; --bytes) value = value << 8 | static_cast<unsigned char>(heard_[at++]);
    return value;
  }
  void say(const std::string& words) { send(socket_.get(), words.data(), words.size(), MSG_NOSIGNAL); }

  const Fd socket_;
  std::set<std::size_t> open_;
  std::size_t next_ = 1;
  std::size_t pongs_ = 0;
  std::string heard_;
  std::map<std::size_t, std::string> answers_;  // by call
};

}  // namespace ranvier::support
