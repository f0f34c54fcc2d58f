// One end of a bidirectional call of gRPC on a connection of its own, without gRPC's library: as much of HTTP/2 (RFC
// 9113) and of gRPC on it as it takes to carry a stream of bytes where nothing but HTTP/2 passes.
//
// It is for both the control plane, which has to hear of each byte and of each end at once, whatever the data are at,
// and the data, which are not copied on their way: docs/decisions/0026 and 0028.
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
  static constexpr std::string_view path = "/ranvier.Ranks/Connect";
  // That are read of somebody who has not been answered yet. Who is called says nothing at all before it answers.
  static constexpr std::size_t most_unproved_bytes = 4 << 10;
  // Of the payload of a frame, either way: room for a slice of the transports and what is in front of it.
  static constexpr std::size_t most_frame = 1 << 20;
  // What the other side may send before this one's owner has taken any of it. As much may have to be put aside (see
  // put_aside()), which is rare; and it is beyond what two kernels hold between two ranks (tcp_buffers: 12 MiB), with
  // what their news of windows waits behind, so that these hold a sender up and the window does not.
  static constexpr std::uint32_t window = 32 << 20;

  Http2Call(CallRole role, bool inside_tls);

  // ---- Sending. Content stays where its owner has it: a frame's head says how much of it follows, whatever that is.

  struct Due {
    ConstBytes words;
    std::size_t content;
  };
  // What the wire gets next, where so much content is offered: `words`, and then the first `content` bytes of it; none
  // where the other side takes no more now. sent() has to follow before anything else is asked.
  Due due(std::size_t offered);
  // So many bytes of what was due went there, or of unsent(). How many of them were content.
  std::size_t sent(std::size_t bytes);
  // Words for the wire that no content has to go before.
  ConstBytes unsent() const { return speaks_ ? ConstBytes(unsent_).subspan(unsent_begin_) : ConstBytes(); }
  // Nothing more will be sent.
  void end();
  // A frame whose beginning went there lacks content: nothing else can follow.
  bool owes_content() const { return owed_ > 0; }

  // ---- Receiving.

  // Where to put what comes from the wire: first `content`, which is within `into`, then `words`, which is this call's
  // own. Not both are empty after a take(into) that has left room.
  struct Room {
    Bytes content;
    Bytes words;
  };
  Room room(Bytes into);
  // So many bytes came there. How many of them are content.
  std::size_t arrived(std::size_t bytes);
  // What was sent by the other side, as much as has come and `into` holds.
  std::size_t take(Bytes into);
  // What has come is kept for the next take(), so that what comes behind it can be heard. The other side is let send
  // more only when it is taken.
  void put_aside();
  // That have come and take() has not given, with what encloses them.
  std::size_t held() const { return buffered().size() + aside_.size() - aside_begin_; }
  // The other side sends no more, and all of it has been taken.
  bool ended() const { return ended_ && aside_.empty(); }
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

  std::vector<std::byte>& words() { return owed_ > 0 ? waiting_ : unsent_; }
  void append_head(std::size_t payload, FrameType type, std::uint8_t flags, std::uint32_t stream);
  void append_frame(FrameType type, std::uint8_t flags, std::uint32_t stream, ConstBytes payload);
  void append_settings();
  void append_update(std::uint32_t stream, std::uint32_t more);
  void begin_data(std::size_t offered);
  void replenish(std::size_t taken);

  ConstBytes buffered() const { return ConstBytes(buffer_).subspan(buffer_begin_, buffer_end_ - buffer_begin_); }
  void use(std::size_t bytes) { buffer_begin_ += bytes; }
  std::size_t take_aside(Bytes into);
  std::size_t read(Bytes into);
  // Whether there was enough to go on.
  bool read_preface();
  bool begin_frame();
  bool read_payload(Bytes into, std::size_t& given);
  bool read_data(Bytes into, std::size_t& given);
  bool read_part_of_settings();
  void end_frame();
  // Of the content of a message, that the frame has.
  std::size_t content_rest() const;

  const CallRole role_;
  const bool inside_tls_;

  std::vector<std::byte> unsent_;  // words, …
  std::size_t unsent_begin_ = 0;
  std::vector<std::byte> waiting_;  // … and those that have to wait for the content that is owed
  std::size_t begun_ = 0;           // content of the frame whose head is last in unsent_, between due() and sent()
  std::size_t owed_ = 0;            // content that the wire was told of and has not had
  bool speaks_;
  bool has_opened_ = false, has_ended_ = false;
  // What the other side still takes; of the call it may be below 0, RFC 9113, 6.9.2.
  std::int64_t connection_window_ = default_window, call_window_ = default_window;
  std::int64_t initial_window_ = default_window;
  std::int64_t payload_limit_;  // of a frame

  // The head of a frame and, of one between ranks, its message, and 4 KiB: what is received behind these into an
  // owner's memory is received to where a line of it begins. To others the kernel copies at three quarters of its
  // speed.
  static constexpr std::size_t heads = 9 + 5;
  std::array<std::byte, heads + (4 << 10)> buffer_;
  std::size_t buffer_begin_ = 0, buffer_end_ = 0;
  std::size_t room_for_content_ = 0;  // of the last room()
  std::vector<std::byte> aside_;      // content, …
  std::size_t aside_begin_ = 0;       // … of which so much was taken
  std::size_t preface_read_ = 0;
  bool in_frame_ = false, has_settings_ = false, has_headers_ = false;
  Frame frame_;
  std::size_t message_prefix_read_ = 0;
  std::uint32_t message_length_ = 0, message_rest_ = 0;
  std::size_t window_left_ = window;  // to the other side
  std::size_t to_replenish_ = 0;
  std::size_t unproved_bytes_ = 0;
  bool has_heard_ = false, is_proved_ = false;
  bool ended_ = false, broken_ = false;

  static constexpr std::int64_t default_window = 65'535;
};

}  // namespace ranvier::transport
