#include "transport/slot_ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "ranvier/error.h"

namespace ranvier::transport {
namespace {

// For what no writer of this ring can have written.
[[noreturn]] void refuse_slot(const std::string& what) {
  throw Error(ErrorKind::internal,
              fmt::format("a ring's slot {}; its memory was overwritten: restart the job, and report "
                          "a bug if it happens again",
                          what));
}

}  // namespace

std::size_t RingWriter::push_large(SlotLine& line, ConstBytes head, ConstBytes body, bool asks) {
  if (head.size() > head_bytes)
    throw Error(ErrorKind::usage, fmt::format("a head of {} bytes was sent; at most {} are accepted, the rest belongs "
                                              "in the body",
                                              head.size(), head_bytes));
  body = body.first(std::min(body.size(), memory_.slice_bytes));
  std::byte* area = memory_.area(next_);
  if (!head.empty()) std::memcpy(area, head.data(), head.size());
  if (!body.empty()) copier_.copy(area + head.size(), body.data(), body.size());
  const std::size_t bytes = head.size() + body.size();
  if (asks) untaken_ |= slot_bit(next_);
  publish(line, static_cast<std::uint32_t>(bytes) | (asks ? asks_mark : 0), bytes, false, asks);
  return bytes;
}

void RingWriter::push_answer(ConstBytes head, const AnswerPlace& place) {
  static_assert(head_bytes + sizeof place <= inline_bytes);
  SlotLine& line = memory_.line(next_);
  copy_small(line.payload.data(), head.data(), head.size());
  std::memcpy(line.payload.data() + head.size(), &place, sizeof place);
  publish(line, static_cast<std::uint32_t>(head.size()) | answer_mark, head.size() + place.bytes);
}

ConstBytes RingWriter::open_answer(const AnswerPlace& place) {
  Taken& asked = taken_[place.message % slots_per_ring];
  if (next_ - place.message - 1 >= slots_per_ring || !asked.asks || place.bytes == 0 ||
      std::uint64_t{place.offset} + place.bytes != asked.bytes)
    refuse_slot(
        fmt::format("claims to hold the answer to message {}, {} bytes from byte {} of it, which was not asked for",
                    place.message, place.bytes, place.offset));
  asked.asks = false;
  return {memory_.area(place.message) + place.offset, place.bytes};
}

std::size_t RingWriter::try_lend(ConstBytes head, const LentBytes& body) {
  static_assert(head_bytes + sizeof(LentBytes) <= inline_bytes);
  if (head.size() > head_bytes) return try_push(head, {});  // which refuses it
  if (!has_room()) return 0;
  SlotLine& line = memory_.line(next_);
  copy_small(line.payload.data(), head.data(), head.size());
  std::memcpy(line.payload.data() + head.size(), &body, sizeof body);
  lending_ = true;
  const std::size_t bytes = head.size() + body.bytes;
  publish(line, static_cast<std::uint32_t>(head.size()) | lent_mark, bytes, true);
  return bytes;
}

std::size_t RingWriter::count_lent() {
  seen_freed_ = static_cast<std::uint32_t>(freed());
  std::uint32_t oldest = seen_freed_;
  while (oldest != next_ && !taken_[oldest % slots_per_ring].lent) ++oldest;
  lending_ = oldest != next_;
  std::size_t bytes = 0;
  for (; oldest != next_; ++oldest) bytes += taken_[oldest % slots_per_ring].bytes;
  return bytes;
}

std::uint64_t RingWriter::freed() const {
  const std::uint64_t all = memory_.control->freed.load(std::memory_order_acquire);
  const auto freed = static_cast<std::uint32_t>(all);
  if (next_ - freed > slots_per_ring)
    throw Error(ErrorKind::internal,
                fmt::format("a ring's reader has freed {} slots of {} that were used; its memory was "
                            "overwritten: restart the job, and report a bug if it happens again",
                            freed, next_));
  return all;
}

// Slots come free in order: what is behind one whose answer is still to be taken waits for it.
bool RingWriter::renew() {
  const std::uint64_t all = freed();
  const std::uint32_t most = static_cast<std::uint32_t>(all) + slots_per_ring;
  const std::uint32_t held = static_cast<std::uint32_t>(all >> 32) & untaken_;
  end_ = next_;
  while (end_ != most && (held & slot_bit(end_)) == 0) ++end_;
  blocked_ = next_ == most;
  return next_ != end_;
}

void RingReader::open_large(std::uint32_t mark) {
  const std::size_t bytes = mark & ~asks_mark;
  if (bytes == 0 || bytes > head_bytes + memory_.slice_bytes)
    refuse_slot(fmt::format("of {} bytes claims to hold {}", head_bytes + memory_.slice_bytes, bytes));
  rest_ = {memory_.area(next_), bytes};
  asks_ = bytes != mark;
}

void RingReader::open_lent(const SlotLine& line, std::size_t head) {
  if (head > head_bytes || lender_ == nullptr)
    refuse_slot(fmt::format("lends memory behind a head of {} bytes, which cannot be", head));
  lender_->require_lent();
  LentBytes body;
  std::memcpy(&body, line.payload.data() + head, sizeof body);
  open_behind(line, head, lender_->view(body));
  is_lent_ = true;
}

void RingReader::open_answer(const SlotLine& line, std::size_t head) {
  if (head > head_bytes || back_ == nullptr)
    refuse_slot(fmt::format("holds an answer behind a head of {} bytes, which cannot be", head));
  AnswerPlace place;
  std::memcpy(&place, line.payload.data() + head, sizeof place);
  open_behind(line, head, back_->open_answer(place));
  answers_ = true;
  answers_to_ = place.message;
}

void RingReader::open_behind(const SlotLine& line, std::size_t head, ConstBytes body) {
  rest_ = head > 0 ? ConstBytes(line.payload.data(), head) : body;
  behind_ = head > 0 ? body : ConstBytes();
}

void RingReader::note_freed(bool answered) {
  if (is_lent_) lender_->require_lent();
  is_lent_ = false;
  const std::uint32_t slot = slot_bit(next_);
  answered_ = answered ? answered_ | slot : answered_ & ~slot;
  if (answers_) back_->took_answer(answers_to_);
  asks_ = answers_ = false;
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
