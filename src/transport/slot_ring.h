// One direction of one lane between two ranks: a ring of eight slots in memory that both can reach, one writer, one
// reader, no lock.
//
// A slot is eight cache lines with a tag and up to 504 bytes of payload, and a payload area elsewhere for what is
// larger; or it says where in its writer's memory the payload lies (lent_memory.h), or that it lies where the reader
// itself has sent it from: an answer, in the area of the slot that it answers (AnswersInPlace). The smallest messages
// thus cost the transfer of a single line: their tag and their bytes travel together; the lines of somewhat larger ones
// follow on the heels of the first. Both ends keep their cursors to themselves; what they tell each other is the tag
// (written last), and how many slots were freed, and by answers or not, which the writer reads only once the slots it
// knows of are used up.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "ranvier/types.h"
#include "transport/bulk_copy.h"
#include "transport/lent_memory.h"

namespace ranvier::transport {

inline constexpr std::uint32_t slots_per_ring = 8;
inline constexpr std::size_t inline_bytes = std::size_t{8} * 64 - sizeof(std::uint64_t);
inline constexpr std::size_t head_bytes = 64;  // a head this long and a whole slice fit one slot
// In the place of a length: the slot holds a head, as long as the other bits say, and a LentBytes behind it.
inline constexpr std::uint32_t lent_mark = std::uint32_t{1} << 31;
// Likewise, with an AnswerPlace behind the head.
inline constexpr std::uint32_t answer_mark = std::uint32_t{1} << 30;
// Beside the length of what lies in an area: the reader may answer there.
inline constexpr std::uint32_t asks_mark = std::uint32_t{1} << 29;

// Of the slot of that message, among those of its ring.
constexpr std::uint32_t slot_bit(std::uint32_t message) { return 1u << message % slots_per_ring; }

// What travels in the place of an answer: that of message `message` of the other ring, from byte `offset` of its area.
struct AnswerPlace {
  std::uint32_t message = 0;
  std::uint32_t offset = 0;
  std::uint32_t bytes = 0;
};

struct alignas(64) SlotLine {
  std::atomic<std::uint64_t> tag;  // sequence number of the message, from 1, below its length: published in one store
  std::array<std::byte, inline_bytes> payload;
};
static_assert(sizeof(SlotLine) == std::size_t{8} * 64 && std::atomic<std::uint64_t>::is_always_lock_free);

struct RingControl {
  // Slots, in the lower half, and in the upper half a bit for each slot that was freed last by an answer; by the
  // reader.
  alignas(64) std::atomic<std::uint64_t> freed;
  alignas(64) std::atomic<std::uint32_t> starved;  // whether the writer sleeps for want of a slot, written by it
};

// Where the parts of a ring lie; zero-filled memory is an empty ring.
struct RingMemory {
  RingControl* control = nullptr;
  SlotLine* lines = nullptr;     // slots_per_ring of them
  std::byte* payload = nullptr;  // as many areas of head_bytes + slice_bytes
  std::size_t slice_bytes = 0;   // a multiple of 64

  static constexpr std::size_t payload_bytes(std::size_t slice_bytes) {
    return slots_per_ring * (head_bytes + slice_bytes);
  }
  SlotLine& line(std::uint32_t count) const { return lines[count % slots_per_ring]; }
  std::byte* area(std::uint32_t count) const { return payload + (count % slots_per_ring) * (head_bytes + slice_bytes); }
};

// memcpy of few bytes without the call, which would take a third of the time of a small send.
inline void copy_small(std::byte* to, const std::byte* from, std::size_t bytes) {
  const auto ends = [&]<class Word>(Word) {  // two words that may overlap
    Word first;
    Word last;
    std::memcpy(&first, from, sizeof first);
    std::memcpy(&last, from + bytes - sizeof last, sizeof last);
    std::memcpy(to, &first, sizeof first);
    std::memcpy(to + bytes - sizeof last, &last, sizeof last);
  };
  if (bytes > 16) {
    std::memcpy(to, from, bytes);
  } else if (bytes >= 8) {
    ends(std::uint64_t{});
  } else if (bytes >= 4) {
    ends(std::uint32_t{});
  } else if (bytes >= 2) {
    ends(std::uint16_t{});
  } else if (bytes == 1) {
    *to = *from;
  }
}

class RingWriter {
 public:
  RingWriter() = default;
  // `first`: what to count from, the same at both ends; the ring's memory says that so many slots were freed.
  explicit RingWriter(const RingMemory& memory, std::uint32_t first = 0)
      : memory_(memory), next_(first), end_(first + slots_per_ring) {}

  // How many bytes of `head` followed by `body` were taken; see Transport::try_send. What is cut off a body leaves a
  // multiple of 64 bytes in front, so that no element is torn in two.
  std::size_t try_push(ConstBytes head, ConstBytes body, bool asks = false) {
    const std::size_t bytes = head.size() + body.size();
    if (bytes == 0 || !has_room()) return 0;
    SlotLine& line = memory_.line(next_);
    if (bytes > inline_bytes || head.size() > head_bytes) return push_large(line, head, body, asks);
    copy_small(line.payload.data(), head.data(), head.size());
    copy_small(line.payload.data() + head.size(), body.data(), body.size());
    publish(line, static_cast<std::uint32_t>(bytes), bytes);
    return bytes;
  }

  // The same for a body that stays where it is: all of it or nothing is taken.
  std::size_t try_lend(ConstBytes head, const LentBytes& body);
  // Whether a slot is free.
  bool has_room() { return next_ != end_ || renew(); }
  // A message whose body is the answer there, where the other side has it. Precondition: has_room().
  void push_answer(ConstBytes head, const AnswerPlace& place);

  // For the reader of the way back. The answer that lies there, which may be taken once. Throws Error{internal} if it
  // was not asked for: nothing that the peer wrote is used unchecked.
  ConstBytes open_answer(const AnswerPlace&);
  // The slot of that message may be used again.
  void took_answer(std::uint32_t message) { untaken_ &= ~slot_bit(message); }

  // What was taken since, and with, the oldest body that the reader has not yet given back.
  std::size_t lent() {
    if (!lending_) return 0;
    return count_lent();
  }

  // Whether slots came free since try_push last found none, or since lent() was last asked; told once.
  bool has_news() {
    if (!blocked_ && !lending_) return false;
    const auto freed = static_cast<std::uint32_t>(memory_.control->freed.load(std::memory_order_acquire));
    const bool news = (blocked_ && freed + slots_per_ring != end_) || (lending_ && freed != seen_freed_);
    return news && std::exchange(told_freed_, freed) != freed;
  }
  // To be said before a sleep and taken back after it.
  void announce_starved(bool starving) {
    if (blocked_ || lending_) memory_.control->starved.store(starving ? 1 : 0, std::memory_order_relaxed);
  }

 private:
  struct Taken {
    std::size_t bytes = 0;
    bool lent = false;
    bool asks = false;
  };

  // `mark` is what the reader finds beside the sequence number.
  void publish(SlotLine& line, std::uint32_t mark, std::size_t bytes, bool lends = false, bool asks = false) {
    taken_[next_ % slots_per_ring] = {bytes, lends, asks};
    ++next_;
    line.tag.store(next_ | static_cast<std::uint64_t>(mark) << 32, std::memory_order_release);
  }
  std::size_t push_large(SlotLine& line, ConstBytes head, ConstBytes body, bool asks);
  std::size_t count_lent();
  std::uint64_t freed() const;
  bool renew();

  RingMemory memory_;
  std::uint32_t next_ = 0;              // messages published; counts wrap around
  std::uint32_t end_ = slots_per_ring;  // where the slots that are known to be free end
  std::uint32_t untaken_ = 0;           // a bit for each slot whose message asked and has no answer that was taken
  bool blocked_ = false;                // the last try_push found no slot, for want of one that was freed
  bool lending_ = false;                // a body may still be lent
  std::uint32_t seen_freed_ = 0;        // by count_lent
  std::uint32_t told_freed_ = 0;        // by has_news
  std::array<Taken, slots_per_ring> taken_{};
  BulkCopier copier_;
};

class RingReader {
 public:
  RingReader() = default;
  // `lender`: the writer's memory, as far as it lends it; outlives the reader. Null: it lends nothing.
  // `back`: the writer of the ring that goes the other way, which may get answers; outlives the reader.
  explicit RingReader(const RingMemory& memory, std::uint32_t first = 0, LenderMemory* lender = nullptr,
                      RingWriter* back = nullptr)
      : memory_(memory), lender_(lender), back_(back), next_(first), noted_(first) {}

  // What is left of the oldest unread message; empty if there is none. Throws Error{internal} if the writer broke the
  // ring: nothing that it wrote is used unchecked.
  ConstBytes peek() {
    if (rest_.empty()) {
      const SlotLine& line = memory_.line(next_);
      const std::uint64_t tag = line.tag.load(std::memory_order_acquire);
      if (static_cast<std::uint32_t>(tag) != next_ + 1) return {};
      open(line, static_cast<std::uint32_t>(tag >> 32));
    }
    return rest_;
  }
  // Takes `bytes` off the front of what peek() gave; true if that freed the slot. Throws Error{peer_lost} where that
  // was lent, and is not for certain what the writer lent.
  bool pop(std::size_t bytes) {
    if (bytes > rest_.size()) throw_overrun(bytes);
    rest_ = rest_.subspan(bytes);
    if (!rest_.empty() || bytes == 0) return false;
    if (!behind_.empty()) [[unlikely]] {
      rest_ = std::exchange(behind_, {});
      return false;
    }
    free(false);
    return true;
  }
  // The end of what peek() gave, to write an answer there; empty if its writer takes none, or that is not the end of
  // it.
  Bytes answerable(ConstBytes body) const {
    if (!asks_ || body.empty() || body.data() < rest_.data() ||
        body.data() + body.size() != rest_.data() + rest_.size())
      return {};
    return {memory_.area(next_) + (body.data() - memory_.area(next_)), body.size()};
  }
  // What answerable() gave, as the other side finds it.
  AnswerPlace place_of(ConstBytes body) const {
    return {next_, static_cast<std::uint32_t>(body.data() - memory_.area(next_)),
            static_cast<std::uint32_t>(body.size())};
  }
  // Takes all of the message, whose answer is published.
  void pop_answered() {
    rest_ = {};
    free(true);
  }
  bool writer_starved() const { return memory_.control->starved.load(std::memory_order_relaxed) != 0; }

  // Whether messages arrived since the last call or the last one read, whichever is later.
  bool has_news();

 private:
  void free(bool answered) {
    if ((answered_ | asks_ | answers_ | is_lent_ | answered) != 0) [[unlikely]]
      note_freed(answered);
    ++next_;
    memory_.control->freed.store(next_ | static_cast<std::uint64_t>(answered_) << 32, std::memory_order_release);
  }
  void note_freed(bool answered);

  void open(const SlotLine& line, std::uint32_t mark) {
    if (mark - 1 < inline_bytes) [[likely]]
      rest_ = {line.payload.data(), mark};
    else if ((mark & lent_mark) != 0)
      open_lent(line, mark & ~lent_mark);
    else if ((mark & answer_mark) != 0)
      open_answer(line, mark & ~answer_mark);
    else
      open_large(mark);
  }
  void open_large(std::uint32_t mark);
  void open_lent(const SlotLine& line, std::size_t head);
  void open_answer(const SlotLine& line, std::size_t head);
  void open_behind(const SlotLine& line, std::size_t head, ConstBytes body);
  [[noreturn]] void throw_overrun(std::size_t bytes) const;

  RingMemory memory_;
  LenderMemory* lender_ = nullptr;
  RingWriter* back_ = nullptr;
  std::uint32_t next_ = 0;   // messages read; counts wrap around
  std::uint32_t noted_ = 0;  // messages that has_news() knows of
  ConstBytes rest_;
  ConstBytes behind_;           // a body that lies elsewhere, while rest_ is its head
  std::uint32_t answered_ = 0;  // a bit for each slot: freed last by an answer
  std::uint32_t answers_to_ = 0;
  bool asks_ = false;     // what is being read may be answered
  bool answers_ = false;  // it is an answer, to message answers_to_ of the way back
  bool is_lent_ = false;  // its body lies in the writer's memory
};

}  // namespace ranvier::transport
