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
  const std::size_t bytes = head.size() + body.size();
  publish(line, static_cast<std::uint32_t>(bytes), bytes);
  return bytes;
}

std::size_t RingWriter::try_lend(ConstBytes head, const LentBytes& body) {
  static_assert(head_bytes + sizeof(LentBytes) <= inline_bytes);
  if (head.size() > head_bytes) return try_push(head, {});  // which refuses it
  if (next_ == end_ && !renew()) return 0;
  SlotLine& line = memory_.line(next_);
  copy_small(line.payload.data(), head.data(), head.size());
  std::memcpy(line.payload.data() + head.size(), &body, sizeof body);
  lending_ = true;
  const std::size_t bytes = head.size() + body.bytes;
  publish(line, static_cast<std::uint32_t>(head.size()) | lent_mark, bytes, true);
  return bytes;
}

std::size_t RingWriter::count_lent() {
  seen_freed_ = freed();
  std::uint32_t oldest = seen_freed_;
  while (oldest != next_ && !taken_[oldest % slots_per_ring].lent) ++oldest;
  lending_ = oldest != next_;
  std::size_t bytes = 0;
  for (; oldest != next_; ++oldest) bytes += taken_[oldest % slots_per_ring].bytes;
  return bytes;
}

std::uint32_t RingWriter::freed() const {
  const std::uint32_t freed = memory_.control->freed.load(std::memory_order_acquire);
  if (next_ - freed > slots_per_ring)
    throw Error(ErrorKind::internal,
                fmt::format("a ring's reader has freed {} slots of {} that were used; its memory was "
                            "overwritten: restart the job, and report a bug if it happens again",
                            freed, next_));
  return freed;
}

bool RingWriter::renew() {
  end_ = freed() + slots_per_ring;
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

void RingReader::open_lent(const SlotLine& line, std::size_t head) {
  if (head > head_bytes || lender_ == nullptr)
    throw Error(ErrorKind::internal, fmt::format("a ring's slot lends memory behind a head of {} bytes, which cannot "
                                                 "be; its memory was overwritten: restart the job, and report a bug if "
                                                 "it happens again",
                                                 head));
  LentBytes body;
  std::memcpy(&body, line.payload.data() + head, sizeof body);
  const ConstBytes view = lender_->view(body);
  rest_ = head > 0 ? ConstBytes(line.payload.data(), head) : view;
  behind_ = head > 0 ? view : ConstBytes();
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
