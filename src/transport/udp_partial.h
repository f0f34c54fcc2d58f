// Messages between two ranks that are sent once: the two ends of them (PartialMessages in ranvier/transport.h). They
// have no place on a lane and no credit: what comes before anybody asks for it is kept, up to a limit, and what is
// beyond that is lost, as it may be anywhere on its way.
//
// Pure: no clock, no socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "ranvier/transport.h"
#include "transport/number_ranges.h"

namespace ranvier::transport {

class UdpPartialSends {
 public:
  // Once, from the caller's memory.
  void add(std::uint32_t ticket, ConstBytes message) { messages_.push_back({ticket, message, 0}); }
  // Of one message, or of all: no memory of callers is read any more.
  void withdraw(std::uint32_t ticket);
  void withdraw_lent();
  // A copy, until all of it has been acknowledged.
  void add_whole(std::uint32_t ticket, ConstBytes message);
  bool has_whole(std::uint64_t place) const { return wholes_.contains(static_cast<std::uint32_t>(place >> 32)); }
  bool all_acknowledged() const { return wholes_.empty(); }

  // The next whole pieces, at most `most` bytes of them, and where they belong: ticket and first piece. What was lost
  // first.
  struct Piece {
    std::uint64_t place = 0;
    ConstBytes bytes;
    bool again = false;
  };
  bool has_next() const { return !messages_.empty() || !again_.empty(); }
  Piece next(std::size_t most) const;
  void sent(const Piece&);

  // Of packets that has_whole() held for.
  void acknowledged(std::uint64_t place, std::size_t bytes);
  void lost(std::uint64_t place, std::size_t bytes);

 private:
  struct Message {
    std::uint32_t ticket;
    ConstBytes bytes;
    std::size_t left;  // so many bytes of it have
  };
  struct Whole {
    std::vector<std::byte> bytes;
    NumberRanges acknowledged;
  };
  struct Lost {
    std::uint32_t ticket;
    NumberRange range;  // bytes
  };
  std::deque<Message> messages_;
  std::map<std::uint32_t, Whole> wholes_;  // by ticket
  std::deque<Lost> again_;                 // of wholes_
};

class UdpPartialReceives {
 public:
  using Time = PartialMessages::Arrival::Time;
  using Message = PartialMessages::Message;

  enum class Piece {
    news,
    useless,  // of a message that was taken, or a second time
    refused,  // impossible, or beyond the limits; if it has to arrive, it has to come again
  };
  // A packet's payload.
  Piece arrived(Time now, std::uint64_t place, ConstBytes payload);

  // But for its `reordering`.
  PartialMessages::Arrival arrival(std::uint32_t ticket, std::size_t bytes);
  std::span<const std::uint8_t> pieces(std::uint32_t ticket, std::size_t bytes) {
    return expected(ticket, bytes).message.arrived;
  }
  Message take(std::uint32_t ticket, std::size_t bytes);
  void give_back(Message);

  // Of messages that nobody has asked for yet.
  static constexpr std::size_t most_early_bytes = std::size_t{1} << 30;
  static constexpr std::size_t most_early_messages = 64;

 private:
  struct Incoming {
    Message message;
    std::size_t bytes = 0;  // that it has; 0: nobody has said so yet
    std::size_t end = 0;    // of what has come
    Time first_at{}, newest_at{};
  };

  Incoming* open(std::uint32_t ticket);
  Incoming& expected(std::uint32_t ticket, std::size_t bytes);
  static void size(Incoming&, std::size_t bytes);

  std::map<std::uint32_t, Incoming> incoming_;  // by ticket
  std::size_t early_messages_ = 0;              // of them, and their bytes
  std::size_t early_bytes_ = 0;
  NumberRanges taken_;         // tickets
  std::vector<Message> free_;  // memory
};

}  // namespace ranvier::transport
