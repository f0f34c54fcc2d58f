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
constexpr std::int64_t ordinary_frame = 16'384;  // what everybody takes
constexpr std::int64_t largest_frame = (1 << 24) - 1;
constexpr std::size_t message_prefix_bytes = 5;  // of gRPC: whether it is compressed, and its length
constexpr std::uint32_t most_message = 2 << 20;  // that is taken; of another implementation's, for a rank's are frames
constexpr std::uint32_t call_stream = 1;         // the first that a client may open
constexpr std::uint8_t ack = 1, end_stream = 1, end_headers = 4, padded = 8;
constexpr std::uint16_t setting_header_table_size = 1, setting_enable_push = 2, setting_initial_window_size = 4,
                        setting_max_frame_size = 5;
constexpr std::size_t setting_bytes = 6;
// Often enough for a sender that is an eighth of its window ahead of the news.
constexpr std::size_t least_update = Http2Call::window / 8;
constexpr std::int64_t most_window = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t ordinary_words = 256;  // that wait at a time; once these are sent nothing is allocated
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
    : role_(role), inside_tls_(inside_tls), speaks_(role == CallRole::caller), payload_limit_(ordinary_frame) {
  for (auto* words : {&unsent_, &waiting_}) words->reserve(ordinary_words);
  if (role_ == CallRole::caller) {
    preface_read_ = preface.size();
    const ConstBytes text = std::as_bytes(std::span(preface));
    unsent_.assign(text.begin(), text.end());
  }
  append_settings();
}

void Http2Call::append_head(std::size_t payload, FrameType type, std::uint8_t flags, std::uint32_t stream) {
  append_number(words(), payload, 3);
  append_number(words(), static_cast<std::uint8_t>(type), 1);
  append_number(words(), flags, 1);
  append_number(words(), stream, 4);
}

void Http2Call::append_frame(FrameType type, std::uint8_t flags, std::uint32_t stream, ConstBytes payload) {
  append_head(payload.size(), type, flags, stream);
  words().insert(words().end(), payload.begin(), payload.end());
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
  set(setting_max_frame_size, most_frame);
  append_frame(FrameType::settings, 0, 0, settings);
  append_update(0, window - static_cast<std::uint32_t>(default_window));
}

void Http2Call::append_update(std::uint32_t stream, std::uint32_t more) {
  append_head(4, FrameType::window_update, 0, stream);
  append_number(words(), more, 4);
}

// ---- Sending.

Http2Call::Due Http2Call::due(std::size_t offered) {
  if (owed_ == 0 && offered > 0) begin_data(offered);
  return {unsent(), std::min(offered, owed_ + begun_)};
}

// Each frame is a message of gRPC. One that has a part of its content is only begun where the other side takes that.
void Http2Call::begin_data(std::size_t offered) {
  if (has_ended_ || (role_ == CallRole::called && !has_headers_)) return;
  if (has_heard_) is_proved_ = true;  // nobody answers whoever is not
  const std::int64_t room =
      std::min({connection_window_, call_window_, payload_limit_}) - static_cast<std::int64_t>(message_prefix_bytes);
  if (room <= 0) return;
  if (!has_opened_)
    append_frame(FrameType::headers, end_headers, call_stream,
                 role_ == CallRole::caller ? request(inside_tls_) : response());
  has_opened_ = true;
  speaks_ = true;
  begun_ = std::min(offered, static_cast<std::size_t>(room));
  append_head(message_prefix_bytes + begun_, FrameType::data, 0, call_stream);
  append_number(unsent_, 0, 1);
  append_number(unsent_, begun_, 4);
}

// A frame of whose head nothing has gone is not begun: it may be another one, or none, next time.
std::size_t Http2Call::sent(std::size_t bytes) {
  const std::size_t of_words = std::min(bytes, unsent_.size() - unsent_begin_);
  unsent_begin_ += of_words;
  if (begun_ > 0) {
    const std::size_t head = unsent_.size() - heads;
    const std::size_t content = std::exchange(begun_, 0);
    if (unsent_begin_ > head) {
      const auto payload = static_cast<std::int64_t>(message_prefix_bytes + content);
      connection_window_ -= payload;
      call_window_ -= payload;
      owed_ = content;
    } else {
      unsent_.resize(head);
    }
  }
  owed_ -= bytes - of_words;
  if (unsent_begin_ == unsent_.size()) {
    unsent_.clear();
    unsent_begin_ = 0;
    if (owed_ == 0 && !waiting_.empty()) unsent_.swap(waiting_);
  }
  return bytes - of_words;
}

void Http2Call::end() {
  if (!has_opened_ || has_ended_) return;
  has_ended_ = true;
  if (owed_ > 0) return;
  if (role_ == CallRole::caller)
    append_frame(FrameType::data, end_stream, call_stream, {});
  else
    append_frame(FrameType::headers, end_headers | end_stream, call_stream, trailers());
}

// ---- Receiving.

std::size_t Http2Call::content_rest() const {
  if (broken_ || !in_frame_ || frame_.type != FrameType::data || !frame_.padding_is_known) return 0;
  return std::min(frame_.rest - frame_.padding, std::size_t{message_rest_});
}

// The own room goes along where the content ends within `into`: the head of the next frame comes behind it.
Http2Call::Room Http2Call::room(Bytes into) {
  std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(buffer_begin_),
            buffer_.begin() + static_cast<std::ptrdiff_t>(buffer_end_), buffer_.begin());
  buffer_end_ -= std::exchange(buffer_begin_, 0);
  const std::size_t content = buffer_end_ > 0 || !aside_.empty() ? 0 : content_rest();
  const std::size_t most = is_proved_ ? std::numeric_limits<std::size_t>::max() : most_unproved_bytes - unproved_bytes_;
  room_for_content_ = std::min({content, into.size(), most});
  Bytes own = Bytes(buffer_).subspan(buffer_end_);
  if (content > room_for_content_ && room_for_content_ > 0) own = {};
  return {into.first(room_for_content_), own.first(std::min(own.size(), most - room_for_content_))};
}

std::size_t Http2Call::arrived(std::size_t bytes) {
  if (!is_proved_ && (unproved_bytes_ += bytes) >= most_unproved_bytes) broken_ = true;
  const std::size_t content = std::min(bytes, std::exchange(room_for_content_, 0));
  message_rest_ -= static_cast<std::uint32_t>(content);
  frame_.rest -= content;
  buffer_end_ += bytes - content;
  has_heard_ |= content > 0;
  replenish(content);
  return content;
}

std::size_t Http2Call::take(Bytes into) {
  std::size_t given = take_aside(into);
  if (aside_.empty()) given += read(into.subspan(given));
  has_heard_ |= given > 0;
  replenish(given);
  return given;
}

std::size_t Http2Call::take_aside(Bytes into) {
  const std::size_t given = std::min(into.size(), aside_.size() - aside_begin_);
  if (given == 0) return 0;
  std::memcpy(into.data(), aside_.data() + aside_begin_, given);
  aside_begin_ += given;
  if (aside_begin_ < aside_.size()) return given;
  aside_ = {};
  aside_begin_ = 0;
  return given;
}

void Http2Call::put_aside() {
  std::array<std::byte, 4 << 10> content;
  while (const std::size_t given = read(content))
    aside_.insert(aside_.end(), content.begin(), content.begin() + static_cast<std::ptrdiff_t>(given));
}

std::size_t Http2Call::read(Bytes into) {
  std::size_t given = 0;
  for (bool goes_on = true; goes_on && !broken_;) {
    if (preface_read_ < preface.size())
      goes_on = read_preface();
    else if (!in_frame_)
      goes_on = begin_frame();
    else if (frame_.rest > 0)
      goes_on = read_payload(into, given);
    else
      end_frame();
    if (unsent_.size() + waiting_.size() > most_unsent) broken_ = true;
  }
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
  const bool speaks_in_call = frame_.type == FrameType::data || frame_.type == FrameType::headers;
  fits &= !speaks_in_call || (frame_.is_of_call && !ended_);
  has_settings_ = true;
  switch (frame_.type) {
    case FrameType::data:
      fits &= has_headers_ && frame_.rest <= window_left_;
      window_left_ -= std::min(window_left_, frame_.rest);
      frame_.padding_is_known = (frame_.flags & padded) == 0;
      fits &= frame_.padding_is_known || frame_.rest > 0;
      break;
    case FrameType::headers:
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
  const std::size_t before = given;
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
    broken_ |= message_rest_ > most_message;
  } else {
    used = std::min({here.size(), content_rest(), into.size() - given});
    if (used == 0) return false;
    std::memcpy(into.data() + given, here.data(), used);
    given += used;
    message_rest_ -= static_cast<std::uint32_t>(used);
  }
  if (given == before) to_replenish_ += used;  // of content it is told when its owner takes it
  frame_.rest -= used;
  use(used);
  return true;
}

bool Http2Call::read_part_of_settings() {
  if (buffered().size() < setting_bytes) return false;
  const ConstBytes setting = buffered().first(setting_bytes);
  const std::uint32_t name = number(setting.first(2));
  const std::int64_t value = number(setting.subspan(2));
  if (name == setting_initial_window_size) {
    call_window_ += value - std::exchange(initial_window_, value);
    broken_ |= value > most_window || call_window_ > most_window;
  } else if (name == setting_max_frame_size) {
    broken_ |= value < ordinary_frame || value > largest_frame;
    payload_limit_ = std::min(value, static_cast<std::int64_t>(most_frame));
  }
  use(setting_bytes);
  frame_.rest -= setting_bytes;
  return true;
}

void Http2Call::end_frame() {
  in_frame_ = false;
  switch (frame_.type) {
    case FrameType::settings:
      if ((frame_.flags & ack) == 0) append_frame(FrameType::settings, ack, 0, {});
      break;
    case FrameType::reset:
      ended_ = has_ended_ = true;
      break;
    case FrameType::data:
    case FrameType::headers:
      ended_ |= (frame_.flags & end_stream) != 0;
      break;
    default:
      break;
  }
}

void Http2Call::replenish(std::size_t taken) {
  to_replenish_ += taken;
  if (to_replenish_ < least_update) return;
  const auto more = static_cast<std::uint32_t>(std::exchange(to_replenish_, 0));
  window_left_ += more;
  append_update(0, more);
  append_update(call_stream, more);
}

}  // namespace ranvier::transport
