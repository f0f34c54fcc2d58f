#include "transport/slot_ring.h"

#include <fmt/format.h>

#include <algorithm>

#include "ranvier/error.h"

namespace ranvier::transport {

std::size_t RingWriter::push_large(SlotLine& line, ConstBytes head, ConstBytes body) {
  if (head.size() > head_bytes)
    throw Error(ErrorKind::usage, fmt::format("a head of {} bytes was sent; at most {} are accepted, the rest belongs "
                                              "in the body",
                                              head.size(), head_bytes));
  body = body.first(std::min(body.size(), memory_.slice_bytes));
  std::byte* area = memory_.area(next_);
  if (!head.empty()) std::memcpy(area, head.data(), head.size());
  if (!body.empty()) copier_.copy(area + head.size(), body.data(), body.size());
  publish(line, head.size() + body.size());
  return head.size() + body.size();
}

bool RingWriter::renew() {
  const std::uint32_t freed = memory_.control->freed.load(std::memory_order_acquire);
  if (next_ - freed > slots_per_ring)
    throw Error(ErrorKind::internal,
                fmt::format("a ring's reader has freed {} slots of {} that were used; its memory was "
                            "overwritten: restart the job, and report a bug if it happens again",
                            freed, next_));
  end_ = freed + slots_per_ring;
  blocked_ = next_ == end_;
  return !blocked_;
}

void RingReader::open_large(std::size_t bytes) {
  if (bytes == 0 || bytes > head_bytes + memory_.slice_bytes)
    throw Error(ErrorKind::internal, fmt::format("a ring's slot of {} bytes claims to hold {}; its memory was "
                                                 "overwritten: restart the job, and report a bug if it happens again",
                                                 head_bytes + memory_.slice_bytes, bytes));
  rest_ = {memory_.area(next_), bytes};
}

void RingReader::throw_overrun(std::size_t bytes) const {
  throw Error(ErrorKind::usage, fmt::format("{} bytes were released of a view that has {} left", bytes, rest_.size()));
}

bool RingReader::has_news() {
  if (static_cast<std::int32_t>(next_ - noted_) > 0) noted_ = next_;
  const std::uint32_t known = noted_;
  while (noted_ - next_ < slots_per_ring &&
         static_cast<std::uint32_t>(memory_.line(noted_).tag.load(std::memory_order_acquire)) == noted_ + 1)
    ++noted_;
  return noted_ != known;
}

}  // namespace ranvier::transport
