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

bool fits(NewsType type, std::size_t payload_bytes) {
  switch (type) {
    case NewsType::heartbeat:
    case NewsType::departure:
      return payload_bytes == 0 || payload_bytes == sizeof(CallClaim);
    case NewsType::fault:
      return payload_bytes <= most_news_text;
    case NewsType::waiting:
      return payload_bytes == sizeof(MessageHeader);
    case NewsType::question:
      return payload_bytes == sizeof(Question);
    case NewsType::answer:
      return payload_bytes >= sizeof(Answer) && payload_bytes <= most_news_text;
  }
  return false;
}

bool makes_sense(const FrameHeader& header, Rank world) {
  return fits(header.type, header.payload_bytes) && header.kind <= static_cast<std::uint8_t>(ErrorKind::internal) &&
         header.origin >= 0 && header.origin < world && header.culprit >= -1 && header.culprit < world;
}

template <class Part>
ConstBytes bytes_of(const Part& part) {
  return std::as_bytes(std::span(&part, 1));
}

}  // namespace

void append_frame(std::vector<std::byte>& out, const News& news) {
  ConstBytes payload, text;
  if (news.type == NewsType::waiting) payload = bytes_of(news.call);
  if (news.type == NewsType::question) payload = bytes_of(news.question);
  if (news.type == NewsType::answer) payload = bytes_of(news.answer);
  if (news.claim) payload = bytes_of(*news.claim);
  if (news.type == NewsType::fault || news.type == NewsType::answer)
    text = std::as_bytes(std::span(news.text)).first(std::min(news.text.size(), most_news_text - payload.size()));
  const FrameHeader header{.type = news.type,
                           .kind = static_cast<std::uint8_t>(news.kind),
                           .payload_bytes = static_cast<std::uint16_t>(payload.size() + text.size()),
                           .origin = news.origin,
                           .culprit = news.culprit};
  for (const ConstBytes part : {bytes_of(header), payload, text}) out.insert(out.end(), part.begin(), part.end());
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
  ConstBytes payload(buffer_.data() + header_bytes, header.payload_bytes);
  const auto take = [&payload](auto& part) {
    std::memcpy(&part, payload.data(), sizeof part);
    payload = payload.subspan(sizeof part);
  };
  if (news.type == NewsType::waiting)
    take(news.call);
  else if (news.type == NewsType::question)
    take(news.question);
  else if (news.type == NewsType::answer)
    take(news.answer);
  else if (news.type != NewsType::fault && !payload.empty())
    take(news.claim.emplace());
  news.text.assign(reinterpret_cast<const char*>(payload.data()), payload.size());
  std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(frame_bytes),
            buffer_.begin() + static_cast<std::ptrdiff_t>(size_), buffer_.begin());
  size_ -= frame_bytes;
  return news;
}

}  // namespace ranvier::engine
