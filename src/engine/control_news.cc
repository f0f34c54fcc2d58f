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
  std::uint16_t payload_bytes;  // the text of a fault, the call that is waited in, a claim
  Rank origin;
  Rank culprit;
};
static_assert(sizeof(FrameHeader) == 12 && std::has_unique_object_representations_v<FrameHeader>);

bool makes_sense(const FrameHeader& header, Rank world) {
  const bool fits = header.type == NewsType::fault ? header.payload_bytes <= most_news_text
                    : header.type == NewsType::waiting
                        ? header.payload_bytes == sizeof(MessageHeader)
                        : header.payload_bytes == 0 || header.payload_bytes == sizeof(CallClaim);
  return header.type >= NewsType::heartbeat && header.type <= NewsType::waiting &&  //
         header.kind <= static_cast<std::uint8_t>(ErrorKind::internal) && fits && header.origin >= 0 &&
         header.origin < world && header.culprit >= -1 && header.culprit < world;
}

}  // namespace

void append_frame(std::vector<std::byte>& out, const News& news) {
  auto payload = std::as_bytes(std::span(news.text)).first(std::min(news.text.size(), most_news_text));
  if (news.type == NewsType::waiting) payload = std::as_bytes(std::span(&news.call, 1));
  if (news.claim) payload = std::as_bytes(std::span(&*news.claim, 1));
  const FrameHeader header{.type = news.type,
                           .kind = static_cast<std::uint8_t>(news.kind),
                           .payload_bytes = static_cast<std::uint16_t>(payload.size()),
                           .origin = news.origin,
                           .culprit = news.culprit};
  const auto head = std::as_bytes(std::span(&header, 1));
  out.insert(out.end(), head.begin(), head.end());
  out.insert(out.end(), payload.begin(), payload.end());
}

std::optional<News> NewsReader::next() {
  static_assert(sizeof(FrameHeader) == header_bytes);
  if (garbage_ || size_ < header_bytes) return std::nullopt;
  FrameHeader header;
  std::memcpy(&header, buffer_.data(), header_bytes);
  garbage_ = !makes_sense(header, world_);
  const std::size_t frame_bytes = header_bytes + header.payload_bytes;
  if (garbage_ || size_ < frame_bytes) return std::nullopt;
  News news{.type = header.type,
            .origin = header.origin,
            .kind = static_cast<ErrorKind>(header.kind),
            .culprit = header.culprit};
  const std::byte* const payload = buffer_.data() + header_bytes;
  if (news.type == NewsType::waiting)
    std::memcpy(&news.call, payload, sizeof news.call);
  else if (news.type == NewsType::fault)
    news.text.assign(reinterpret_cast<const char*>(payload), header.payload_bytes);
  else if (header.payload_bytes > 0)
    std::memcpy(&news.claim.emplace(), payload, sizeof(CallClaim));
  std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(frame_bytes),
            buffer_.begin() + static_cast<std::ptrdiff_t>(size_), buffer_.begin());
  size_ -= frame_bytes;
  return news;
}

}  // namespace ranvier::engine
