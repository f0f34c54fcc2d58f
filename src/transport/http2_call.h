// One end of a bidirectional call of gRPC on a connection of its own, without gRPC's library: as much of HTTP/2 (RFC
// 9113) and of gRPC on it as it takes to carry a stream of bytes where nothing but HTTP/2 passes.
//
// It is for the control plane, which has to hear of each byte and of each end at once, whatever the data are at. A
// thread that waits for that in gRPC's library polls for all connections of the process, and takes the data's events
// from whoever drives them; and a call on the connection of the data stands behind the megabytes that they have sent.
//
// It knows no socket: bytes come from the wire and go there by its owner. Its headers are written, and those of the
// other side are not looked at: whoever belongs to the job shows it by what he says in the call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ranvier/types.h"

namespace ranvier::transport {

enum class CallRole { caller, called };

class Http2Call {
 public:
  static constexpr std::string_view path = "/ranvier.Control/Connect";
  // That are read of somebody who has not been answered yet. Who is called says nothing at all before it answers.
  static constexpr std::size_t most_unproved_bytes = 4 << 10;

  Http2Call(CallRole role, bool inside_tls);

  // Takes as much of `head` and `body` as may be sent now, which is then part of unsent().
  std::size_t send(ConstBytes head, ConstBytes body);
  // Nothing more will be sent.
  void end();
  // For the wire, in this order.
  ConstBytes unsent() const { return speaks_ ? ConstBytes(unsent_).subspan(unsent_begin_) : ConstBytes(); }
  void sent(std::size_t bytes);

  // Where to put what comes from the wire; never empty after a take() that has not filled its `into`.
  Bytes space();
  void arrived(std::size_t bytes);
  // What was sent by the other side, as much as has come and `into` holds.
  std::size_t take(Bytes into);
  // The other side sends no more, and all of it has been taken.
  bool ended() const { return ended_; }
  bool has_ended() const { return has_ended_; }  // this side
  // What came is not HTTP/2, or no such call.
  bool broken() const { return broken_; }

 private:
  enum class FrameType : std::uint8_t {
    data,
    headers,
    priority,
    reset,
    settings,
    push_promise,
    ping,
    go_away,
    window_update,
    continuation
  };
  struct Frame {
    std::size_t rest = 0;  // of its payload
    FrameType type = FrameType::settings;
    std::uint8_t flags = 0;
    bool is_of_call = false;
    std::size_t padding = 0;
    bool padding_is_known = true;
  };

  void append_frame(FrameType type, std::uint8_t flags, std::uint32_t stream, ConstBytes payload);
  void append_settings();
  void append_update(std::uint32_t stream, std::uint32_t more);
  void replenish();

  ConstBytes buffered() const { return ConstBytes(buffer_).subspan(buffer_begin_, buffer_end_ - buffer_begin_); }
  void use(std::size_t bytes) { buffer_begin_ += bytes; }
  // Whether there was enough to go on.
  bool read_preface();
  bool begin_frame();
  bool read_payload(Bytes into, std::size_t& given);
  bool read_data(Bytes into, std::size_t& given);
  bool read_part_of_settings();
  void end_frame();

  const CallRole role_;
  const bool inside_tls_;

  std::vector<std::byte> unsent_;
  std::size_t unsent_begin_ = 0;
  bool speaks_;
  bool has_opened_ = false, has_ended_ = false;
  // What the other side still takes; of the call it may be below 0, RFC 9113, 6.9.2.
  std::int64_t connection_window_ = default_window, call_window_ = default_window;
  std::int64_t initial_window_ = default_window;

  std::array<std::byte, 4 << 10> buffer_;
  std::size_t buffer_begin_ = 0, buffer_end_ = 0;
  std::size_t preface_read_ = 0;
  bool in_frame_ = false, has_settings_ = false, has_headers_ = false;
  Frame frame_;
  std::size_t message_prefix_read_ = 0;
  std::uint32_t message_length_ = 0, message_rest_ = 0;
  std::size_t to_replenish_ = 0;
  std::size_t unproved_bytes_ = 0;
  bool has_heard_ = false, is_proved_ = false;
  bool ended_ = false, broken_ = false;

  static constexpr std::int64_t default_window = 65'535;
};

}  // namespace ranvier::transport
