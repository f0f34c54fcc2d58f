#include "transport/http2_call.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <span>
#include <utility>

namespace ranvier::transport {
namespace {

constexpr std::string_view preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr std::size_t frame_header_bytes = 9;
constexpr std::size_t most_frame = 16'384;       // what everybody takes
constexpr std::size_t message_prefix_bytes = 5;  // of gRPC: whether it is compressed, and its length
constexpr std::uint32_t call_stream = 1;         // the first that a client may open
constexpr std::uint8_t ack = 1, end_stream = 1, end_headers = 4, padded = 8;
constexpr std::uint16_t setting_header_table_size = 1, setting_enable_push = 2, setting_initial_window_size = 4;
constexpr std::size_t setting_bytes = 6;
// Beyond what a rank that is stopped for hours is sent: whoever polls for a call whose window is full would find its
// socket writable again and again.
constexpr std::uint32_t window = 16 << 20;
constexpr std::int64_t most_window = std::numeric_limits<std::int32_t>::max();
// Answers to what the other side asks for, which waits for none of them.
constexpr std::size_t most_unsent = 256 << 10;

// HPACK, RFC 7541: fields by their number in the static table, and texts as they are.
void append_text(std::vector<std::byte>& to, std::string_view text) {
  to.push_back(static_cast<std::byte>(text.size()));  // below 127
  for (const char letter : text) to.push_back(static_cast<std::byte>(letter));
}
void append_bytes(std::vector<std::byte>& to, std::initializer_list<unsigned> bytes) {
  for (const unsigned each : bytes) to.push_back(static_cast<std::byte>(each));
}
void append_number(std::vector<std::byte>& to, std::uint64_t number, int bytes) {
  while (bytes-- > 0) to.push_back(static_cast<std::byte>(number >> (8 * bytes)));
}
std::uint32_t number(ConstBytes bytes) {
  std::uint32_t value = 0;
  for (const std::byte each : bytes) value = value << 8 | std::to_integer<std::uint32_t>(each);
  return value;
}

void append_content_type(std::vector<std::byte>& fields) {
  append_bytes(fields, {0x0f, 31 - 15});
  append_text(fields, "application/grpc");
}

std::vector<std::byte> request(bool inside_tls) {
  std::vector<std::byte> fields;
  append_bytes(fields, {0x83, inside_tls ? 0x87U : 0x86U, 0x04});  // POST, https or http, :path
  append_text(fields, Http2Call::path);
  append_bytes(fields, {0x01});  // :authority
  append_text(fields, "ranvier");
  append_bytes(fields, {0x00});
  append_text(fields, "te");
  append_text(fields, "trailers");
  append_content_type(fields);
  return fields;
}

std::vector<std::byte> response() {
  std::vector<std::byte> fields;
  append_bytes(fields, {0x88});  // :status 200
  append_content_type(fields);
  return fields;
}

std::vector<std::byte> trailers() {
  std::vector<std::byte> fields;
  append_bytes(fields, {0x00});
  append_text(fields, "grpc-status");
  append_text(fields, "0");
  return fields;
}

}  // namespace

Http2Call::Http2Call(CallRole role, bool inside_tls)
    : role_(role), inside_tls_(inside_tls), speaks_(role == CallRole::caller) {
  if (role_ == CallRole::caller) {
    preface_read_ = preface.size();
    const ConstBytes words = std::as_bytes(std::span(preface));
    unsent_.assign(words.begin(), words.end());
  }
  append_settings();
}

void Http2Call::append_frame(FrameType type, std::uint8_t flags, std::uint32_t stream, ConstBytes payload) {
  append_number(unsent_, payload.size(), 3);
  append_number(unsent_, static_cast<std::uint8_t>(type), 1);
  append_number(unsent_, flags, 1);
  append_number(unsent_, stream, 4);
  unsent_.insert(unsent_.end(), payload.begin(), payload.end());
}

void Http2Call::append_settings() {
  std::vector<std::byte> settings;
  const auto set = [&settings](std::uint16_t name, std::uint32_t value) {
    append_number(settings, name, 2);
    append_number(settings, value, 4);
  };
  set(setting_header_table_size, 0);
  if (role_ == CallRole::caller) set(setting_enable_push, 0);
  set(setting_initial_window_size, window);
  append_frame(FrameType::settings, 0, 0, settings);
  append_update(0, window - static_cast<std::uint32_t>(default_window));
}

void Http2Call::append_update(std::uint32_t stream, std::uint32_t more) {
  std::vector<std::byte> payload;
  append_number(payload, more, 4);
  append_frame(FrameType::window_update, 0, stream, payload);
}

std::size_t Http2Call::send(ConstBytes head, ConstBytes body) {
  if (has_ended_ || (role_ == CallRole::called && !has_headers_)) return 0;
  if (has_heard_) is_proved_ = true;  // nobody answers whoever is not
  const auto room = std::min({connection_window_, call_window_, static_cast<std::int64_t>(most_frame)}) -
                    static_cast<std::int64_t>(message_prefix_bytes);
  const std::size_t bytes =
      std::min(head.size() + body.size(), static_cast<std::size_t>(std::max<std::int64_t>(room, 0)));
  if (bytes == 0) return 0;
  if (!has_opened_)
    append_frame(FrameType::headers, end_headers, call_stream,
                 role_ == CallRole::caller ? request(inside_tls_) : response());
  has_opened_ = true;
  speaks_ = true;
  std::vector<std::byte> message;
  append_number(message, 0, 1);
  append_number(message, bytes, 4);
  head = head.first(std::min(head.size(), bytes));
  body = body.first(bytes - head.size());
  for (const ConstBytes part : {head, body}) message.insert(message.end(), part.begin(), part.end());
  append_frame(FrameType::data, 0, call_stream, message);
  connection_window_ -= static_cast<std::int64_t>(message.size());
  call_window_ -= static_cast<std::int64_t>(message.size());
  return bytes;
}

void Http2Call::end() {
  if (!has_opened_ || has_ended_) return;
  has_ended_ = true;
  if (role_ == CallRole::caller)
    append_frame(FrameType::data, end_stream, call_stream, {});
  else
    append_frame(FrameType::headers, end_headers | end_stream, call_stream, trailers());
}

void Http2Call::sent(std::size_t bytes) {
  unsent_begin_ += bytes;
  if (unsent_begin_ < unsent_.size()) return;
  unsent_.clear();
  unsent_begin_ = 0;
}

Bytes Http2Call::space() {
  std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(buffer_begin_),
            buffer_.begin() + static_cast<std::ptrdiff_t>(buffer_end_), buffer_.begin());
  buffer_end_ -= std::exchange(buffer_begin_, 0);
  return Bytes(buffer_).subspan(buffer_end_);
}

void Http2Call::arrived(std::size_t bytes) {
  buffer_end_ += bytes;
  if (!is_proved_ && (unproved_bytes_ += bytes) > most_unproved_bytes) broken_ = true;
}

std::size_t Http2Call::take(Bytes into) {
  std::size_t given = 0;
  for (bool goes_on = true; goes_on && !broken_ && !ended_;) {
    if (preface_read_ < preface.size())
      goes_on = read_preface();
    else if (!in_frame_)
      goes_on = begin_frame();
    else
      goes_on = read_payload(into, given);
    if (in_frame_ && frame_.rest == 0 && !broken_) {
      in_frame_ = false;
      end_frame();
    }
    if (unsent_.size() > most_unsent) broken_ = true;
  }
  has_heard_ |= given > 0;
  return given;
}

bool Http2Call::read_preface() {
  const std::size_t bytes = std::min(buffered().size(), preface.size() - preface_read_);
  broken_ = std::memcmp(buffered().data(), preface.data() + preface_read_, bytes) != 0;
  preface_read_ += bytes;
  use(bytes);
  return bytes > 0;
}

bool Http2Call::begin_frame() {
  if (buffered().size() < frame_header_bytes) return false;
  const ConstBytes header = buffered().first(frame_header_bytes);
  frame_ = {.rest = number(header.first(3)),
            .type = static_cast<FrameType>(header[3]),
            .flags = std::to_integer<std::uint8_t>(header[4])};
  const std::uint32_t stream = number(header.subspan(5)) & 0x7fff'ffff;
  frame_.is_of_call = stream == call_stream;
  use(frame_header_bytes);
  in_frame_ = true;

  const bool is_settings = frame_.type == FrameType::settings;
  bool fits = frame_.rest <= most_frame && (has_settings_ || is_settings);
  has_settings_ = true;
  switch (frame_.type) {
    case FrameType::data:
      fits &= frame_.is_of_call && has_headers_;
      frame_.padding_is_known = (frame_.flags & padded) == 0;
      fits &= frame_.padding_is_known || frame_.rest > 0;
      to_replenish_ += frame_.rest;
      break;
    case FrameType::headers:
      fits &= frame_.is_of_call;
      has_headers_ = true;
      break;
    case FrameType::settings:
      fits &= stream == 0 && frame_.rest % setting_bytes == 0 && ((frame_.flags & ack) == 0 || frame_.rest == 0);
      break;
    case FrameType::ping:
      fits &= stream == 0 && frame_.rest == 8;
      break;
    case FrameType::window_update:
      fits &= frame_.rest == 4 && (stream == 0 || frame_.is_of_call);
      break;
    case FrameType::reset:
      fits &= frame_.rest == 4 && frame_.is_of_call;
      break;
    case FrameType::push_promise:
      fits = false;  // nobody asked for one
      break;
    default:
      break;  // what is not known is let pass
  }
  broken_ |= !fits;
  return true;
}

bool Http2Call::read_payload(Bytes into, std::size_t& given) {
  switch (frame_.type) {
    case FrameType::data:
      return read_data(into, given);
    case FrameType::settings:
      return read_part_of_settings();
    case FrameType::ping: {
      if (buffered().size() < frame_.rest) return false;
      if ((frame_.flags & ack) == 0) append_frame(FrameType::ping, ack, 0, buffered().first(frame_.rest));
      use(std::exchange(frame_.rest, 0));
      return true;
    }
    case FrameType::window_update: {
      if (buffered().size() < frame_.rest) return false;
      const std::int64_t more = number(buffered().first(frame_.rest)) & 0x7fff'ffff;
      std::int64_t& widened = frame_.is_of_call ? call_window_ : connection_window_;
      widened += more;
      broken_ |= more == 0 || widened > most_window;
      use(std::exchange(frame_.rest, 0));
      return true;
    }
    default: {
      const std::size_t skipped = std::min(buffered().size(), frame_.rest);
      use(skipped);
      frame_.rest -= skipped;
      return skipped > 0;
    }
  }
}

bool Http2Call::read_data(Bytes into, std::size_t& given) {
  ConstBytes here = buffered();
  if (here.empty()) return false;
  std::size_t used = 1;
  if (!frame_.padding_is_known) {
    frame_.padding = std::to_integer<std::size_t>(here[0]);
    frame_.padding_is_known = true;
    broken_ |= frame_.padding >= frame_.rest;
  } else if (frame_.rest == frame_.padding) {
    used = std::min(here.size(), frame_.rest);
    frame_.padding -= used;
  } else if (message_rest_ == 0) {
    // Byte by byte: one is compressed, which none is, and the length.
    if (message_prefix_read_ == 0) broken_ |= here[0] != std::byte{0};
    message_prefix_read_ = (message_prefix_read_ + 1) % message_prefix_bytes;
    message_length_ = message_length_ << 8 | std::to_integer<std::uint32_t>(here[0]);
    if (message_prefix_read_ == 0) message_rest_ = std::exchange(message_length_, 0);
  } else {
    used = std::min({here.size(), frame_.rest - frame_.padding, std::size_t{message_rest_}, into.size() - given});
    if (used == 0) return false;
    std::memcpy(into.data() + given, here.data(), used);
    given += used;
    message_rest_ -= static_cast<std::uint32_t>(used);
  }
  frame_.rest -= used;
  use(used);
  return true;
}

bool Http2Call::read_part_of_settings() {
  if (buffered().size() < setting_bytes) return false;
  const ConstBytes setting = buffered().first(setting_bytes);
  if (number(setting.first(2)) == setting_initial_window_size) {
    const std::int64_t size = number(setting.subspan(2));
    call_window_ += size - std::exchange(initial_window_, size);
    broken_ |= size > most_window || call_window_ > most_window;
  }
  use(setting_bytes);
  frame_.rest -= setting_bytes;
  return true;
}

void Http2Call::end_frame() {
  switch (frame_.type) {
    case FrameType::settings:
      if ((frame_.flags & ack) == 0) append_frame(FrameType::settings, ack, 0, {});
      break;
    case FrameType::reset:
      ended_ |= frame_.is_of_call;
      break;
    case FrameType::data:
      replenish();
      [[fallthrough]];
    case FrameType::headers:
      ended_ |= (frame_.flags & end_stream) != 0;
      break;
    default:
      break;
  }
}

void Http2Call::replenish() {
  if (to_replenish_ < window / 2) return;
  const auto more = static_cast<std::uint32_t>(std::exchange(to_replenish_, 0));
  append_update(0, more);
  append_update(call_stream, more);
}

}  // namespace ranvier::transport
