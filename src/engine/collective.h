// The executor: runs one compiled program over a transport, whatever the algorithm.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "engine/call_history.h"
#include "engine/lending.h"
#include "engine/message_header.h"
#include "engine/operation.h"
#include "ranvier/kernel.h"
#include "ranvier/schedule.h"

namespace ranvier::engine {

// The place of a collective among those of its communicator, the same on all ranks.
struct Ticket {
  std::uint32_t sequence = 0;  // how many came before it
  Lane lane = 0;
  std::uint32_t turn = 0;     // what lets it run on its lane, …
  std::uint32_t next = 0;     // … and then the one behind it
  std::uint32_t history = 0;  // the digest of those before it
};

// Everything that one run of a program needs; the memory outlives the operation.
struct CollectiveCall {
  std::shared_ptr<const Program> program;
  MessageHeader header;              // as far as it is the same on all links
  CallStamp stamp;                   // of that
  bool size_by_link = false;         // header.size is the bytes of each link, see size_on_link
  std::array<std::byte*, 3> base{};  // of input, output, scratch: indexed by Buffer
  kernel::ReduceFunction reduce = nullptr;
  PeerMemory* lender = nullptr;       // sends go through it; null where they may not be lent
  std::shared_ptr<Lending> lending;   // says which operations lend; null: all do that have a lender
  AnswersInPlace* answers = nullptr;  // what is not lent may be answered there; null where nothing may
  Rank divisor = 0;                   // averages: world size; else 0
  std::size_t element_bytes = 1;
  std::size_t count = 0;  // for messages about it
  std::size_t bytes_to_send = 0;
  std::size_t bytes_to_receive = 0;
  Ticket ticket;
  int priority = 0;

  void set_memory(std::byte* input, std::byte* output) { base = {input, output, nullptr}; }
  void set_ticket(const Ticket& its) {
    ticket = its;
    header.sequence = its.sequence;
    header.history = its.history;
  }
};

class CollectiveOperation final : public Operation {
 public:
  CollectiveOperation() = default;
  explicit CollectiveOperation(CollectiveCall call) { reset(std::move(call)); }
  void reset(CollectiveCall call);
  // The same call once more, on other memory and under another number.
  void restart(std::byte* input, std::byte* output, const Ticket&);

  Progress advance(Transport&, bool briefly) override;
  std::string describe() const override;
  Rank waits_for() const override;
  std::optional<Expected> expects() const override;
  FlightRecorder::Entry entry() const override;

  const CollectiveCall& call() const { return call_; }
  bool needs_scratch() const {
    return call_.program->scratch_bytes > 0 && call_.base[static_cast<std::size_t>(Buffer::scratch)] == nullptr;
  }
  // Scratch memory is lent when the operation's turn on its lane comes, since operations of one lane share it.
  void set_scratch(std::byte* memory) { call_.base[static_cast<std::size_t>(Buffer::scratch)] = memory; }

 private:
  void rewind();
  void begin_lending();
  void end_lending();
  bool push(Transport&);
  bool pull(Transport&);
  bool receive(Transport&, const Instruction&);
  bool answer(Transport&, const Instruction& receive, ConstBytes view);
  bool is_sent(Transport&, const Instruction& send) const;
  void check(const MessageHeader& theirs, Rank peer, Rank self) const;
  MessageHeader header_for(Rank peer, bool sending) const;
  ConstBytes head_of(const Instruction& send, MessageHeader& header) const;
  std::byte* at(Buffer buffer, std::size_t offset) const {
    return call_.base[static_cast<std::size_t>(buffer)] + offset;
  }

  CollectiveCall call_;
  std::size_t next_send_ = 0;          // the instruction that is being sent, …
  std::size_t send_offset_ = 0;        // … and how far
  std::size_t sends_done_ = 0;         // whose memory may be overwritten again
  bool head_sent_ = false;             // of the current send
  PeerMemory* lender_ = nullptr;       // of this run
  std::uint64_t began_ = 0;            // in ticks, where that decides who lends; 0: it has not
  std::vector<std::size_t> accepted_;  // bytes on each link; kept for a lender only
  std::size_t next_receive_ = 0;
  std::size_t receive_offset_ = 0;
  bool head_received_ = false;
};

}  // namespace ranvier::engine
