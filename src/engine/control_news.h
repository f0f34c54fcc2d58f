// What control planes tell each other, and its form on the wire.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/call_history.h"
#include "engine/inquiry.h"
#include "engine/message_header.h"
#include "ranvier/error.h"
#include "ranvier/types.h"

namespace ranvier::engine {

enum class NewsType : std::uint8_t { heartbeat = 1, fault, departure, waiting, question, answer };

struct News {
  NewsType type = NewsType::heartbeat;
  Rank origin = 0;  // who left, who waits, who asks or answers, or who noticed the fault
  // Of a fault only:
  ErrorKind kind = ErrorKind::peer_lost;
  Rank culprit = -1;      // of a question and of an answer: whom it is for
  std::string text = {};  // of an answer, too
  // Of waiting only: the collective that does not get on.
  MessageHeader call = {};
  // Of a heartbeat and of a departure: what the origin has called.
  std::optional<CallClaim> claim = {};
  Question question = {};
  Answer answer = {};

  Error error() const { return {kind, text, culprit}; }
};

inline constexpr std::size_t most_news_text = 1024;

// Appends the wire form of `news`; a longer text is cut.
void append_frame(std::vector<std::byte>& out, const News& news);

// Cuts what arrives from one neighbour into news.
class NewsReader {
 public:
  explicit NewsReader(Rank world) : world_(world) {}

  // Where the next bytes go; never empty between calls of next() that returned nothing.
  Bytes space() { return Bytes(buffer_).subspan(size_); }
  void filled(std::size_t bytes) { size_ += bytes; }

  // The next complete piece of news; empty when more bytes are needed, and once garbage has come.
  std::optional<News> next();
  bool garbage() const { return garbage_; }

 private:
  static constexpr std::size_t header_bytes = 12;

  Rank world_;
  std::array<std::byte, header_bytes + most_news_text> buffer_;
  std::size_t size_ = 0;
  bool garbage_ = false;
};

}  // namespace ranvier::engine
