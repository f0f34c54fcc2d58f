#include "engine/control_news.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <type_traits>

namespace ranvier::engine {
namespace {

// In host byte order; the handshake before it has refused machines of the other one.
struct FrameHeader {
  NewsType type;
  std::uint8_t kind;
  std::uint16_t text_bytes;
  Rank origin;
  Rank culprit;
};
static_assert(sizeof(FrameHeader) == 12 && std::has_unique_object_representations_v<FrameHeader>);

bool makes_sense(const FrameHeader& header, Rank world) {
  const std::size_t most_text = header.type == NewsType::fault ? most_news_text : 0;
  return header.type >= NewsType::heartbeat && header.type <= NewsType::departure &&  //
         header.kind <= static_cast<std::uint8_t>(ErrorKind::internal) && header.text_bytes <= most_text &&
         header.origin >= 0 && header.origin < world && header.culprit >= -1 && header.culprit < world;
}

}  // namespace

void append_frame(std::vector<std::byte>& out, const News& news) {
  const std::size_t text_bytes = std::min(news.text.size(), most_news_text);
  const FrameHeader header{.type = news.type,
                           .kind = static_cast<std::uint8_t>(news.kind),
                           .text_bytes = static_cast<std::uint16_t>(text_bytes),
                           .origin = news.origin,
                           .culprit = news.culprit};
  const auto head = std::as_bytes(std::span(&header, 1));
  const auto text = std::as_bytes(std::span(news.text)).first(text_bytes);
  out.insert(out.end(), head.begin(), head.end());
  out.insert(out.end(), text.begin(), text.end());
}

std::optional<News> NewsReader::next() {
  static_assert(sizeof(FrameHeader) == header_bytes);
  if (garbage_ || size_ < header_bytes) return std::nullopt;
  FrameHeader header;
  std::memcpy(&header, buffer_.data(), header_bytes);
  garbage_ = !makes_sense(header, world_);
  const std::size_t frame_bytes = header_bytes + header.text_bytes;
  if (garbage_ || size_ < frame_bytes) return std::nullopt;
  News news{.type = header.type,
            .origin = header.origin,
            .kind = static_cast<ErrorKind>(header.kind),
            .culprit = header.culprit,
            .text = {reinterpret_cast<const char*>(buffer_.data()) + header_bytes, header.text_bytes}};
  std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(frame_bytes),
            buffer_.begin() + static_cast<std::ptrdiff_t>(size_), buffer_.begin());
  size_ -= frame_bytes;
  return news;
}

}  // namespace ranvier::engine
