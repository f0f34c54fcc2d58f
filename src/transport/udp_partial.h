// Messages between two ranks that are sent once: the two ends of them (PartialMessages in ranvier/transport.h). They
// have no place on a lane. What comes before anybody asks for it is kept, up to a limit, which is the sender's credit:
// it is told below which ticket all have been asked for, and of later ones it has no more under way or arrived than the
// limit allows. Of those below nothing is held back, so whatever the others wait for, the oldest gets on. And so that
// those do not wait for it, a message is asked for when it is known that it will be looked at, not when it is.
//
// Pure: no clock, no socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "ranvier/transport.h"
#include "transport/number_ranges.h"

namespace ranvier::transport {

// Of messages that nobody has asked for yet.
struct UdpPartialCredit {
  std::size_t bytes = std::size_t{64} << 20;
  std::size_t messages = 64;
};

// Packets have the lower half of a ticket: the ticket with that one which is nearest to `near`.
inline std::uint64_t whole_ticket(std::uint64_t lower, std::uint64_t near) {
  const auto ahead = static_cast<std::uint32_t>(lower - near), behind = static_cast<std::uint32_t>(near - lower);
  return ahead > behind && behind <= near ? near - behind : near + ahead;
}

class UdpPartialSends {
 public:
  // `credit`: as the other end has it.
  explicit UdpPartialSends(const UdpPartialCredit& credit = {}) : credit_(credit) {}

  using Pieces = PartialMessages::Pieces;
  // More of a message, once, from the caller's memory.
  void add(std::uint64_t ticket, ConstBytes message, Pieces pieces);
  // Of one message, or of all: no memory of callers is read any more.
  void withdraw(std::uint64_t ticket);
  void withdraw_lent();
  // More of a message, from memory that is kept until all of it has been acknowledged.
  void add_whole(std::uint64_t ticket, ConstBytes message, std::shared_ptr<const void> memory, Pieces pieces);
  bool has_whole(std::uint64_t place) const { return wholes_.contains(ticket_at(place)); }
  std::size_t unacknowledged() const;  // of them

  // The next whole pieces, at most `most` bytes of them, and where they belong: ticket and first piece. What was lost
  // first.
  struct Piece {
    std::uint64_t place = 0;
    ConstBytes bytes;
    bool again = false;
  };
  bool has_next() const { return next_again() != wholes_.end() || next_message() != messages_.end(); }
  Piece next(std::size_t most) const;
  void sent(const Piece&);

  // The other end has asked for all messages below that ticket; its lower half.
  void asked_below(std::uint32_t ticket);
  bool waits_for_credit() const { return !messages_.empty() && !has_next(); }

  // Of packets that has_whole() held for.
  void acknowledged(std::uint64_t place, std::size_t bytes);
  void lost(std::uint64_t place, std::size_t bytes);

 private:
  struct Message {  // or some of one that has to be whole
    std::uint64_t ticket;
    ConstBytes bytes;
    std::size_t left;  // up to here it has
    std::size_t end;   // up to here it may
  };
  struct Whole {
    ConstBytes bytes;
    std::shared_ptr<const void> memory;
    std::size_t given;  // of the bytes
    NumberRanges acknowledged;
    NumberRanges again;  // what was lost
  };
  using Wholes = std::map<std::uint64_t, Whole>;  // by ticket
  using Messages = std::deque<Message>;

  std::uint64_t ticket_at(std::uint64_t place) const { return whole_ticket(place >> 32, newest_); }
  // Next to the one before, if it goes on there.
  void insert(Messages::const_iterator, const Message&);
  // How much of it may leave now, whole pieces or all that is left.
  std::size_t allowed(const Message&) const;
  Messages::const_iterator next_message() const;
  Wholes::const_iterator next_again() const;

  const UdpPartialCredit credit_;
  std::uint64_t asked_below_ = 0;
  std::map<std::uint64_t, std::size_t> early_;  // by ticket, what has left of those that may not have been asked for
  std::size_t early_bytes_ = 0;                 // of all of them
  Messages messages_;
  Wholes wholes_;
  std::uint64_t newest_ = 0;  // ticket of those that were added
};

class UdpPartialReceives {
 public:
  using Time = PartialMessages::Arrival::Time;
  using Message = PartialMessages::Message;

  enum class Piece {
    news,
    useless,  // of a message that was taken, or a second time
    refused,  // impossible, or beyond the credit; if it has to arrive, it has to come again
  };

  explicit UdpPartialReceives(const UdpPartialCredit& credit = {}) : credit_(credit) {}

  // A packet's payload.
  Piece arrived(Time now, std::uint64_t place, ConstBytes payload);

  // Asks for a message. Where the sender may have waited for this, the wait is told neither as silence of its nor as
  // time that the message took. Takes no memory until something of it comes.
  void expect(std::uint64_t ticket, std::size_t bytes, Time now = {}) { ask(ticket, bytes, now); }
  // But for its `reordering`. This, and what follows, asks for the message, too.
  PartialMessages::Arrival arrival(std::uint64_t ticket, std::size_t bytes);
  const Message& message(std::uint64_t ticket, std::size_t bytes) { return expected(ticket, bytes).message; }
  Message take(std::uint64_t ticket, std::size_t bytes);
  void give_back(Message);

  // Below which ticket all messages have been asked for.
  std::uint64_t asked_below() const;
  // Whether the sender's credit may be used up. It counts what was lost on its way, too.
  bool may_hold_up() const { return early_bytes_ >= credit_.bytes / 4 || early_messages_ >= credit_.messages / 4; }

 private:
  struct Incoming {
    Message message;
    std::size_t bytes = 0;  // that it has; 0: nobody has said so yet
    std::size_t end = 0;    // of what has come
    Time first_at{}, newest_at{};
    // Else what came before it was asked for is of another message.
    bool fits() const { return end <= bytes && (end % PartialMessages::piece_bytes == 0 || end == bytes); }
  };

  Incoming* open(std::uint64_t ticket);
  Incoming* ask(std::uint64_t ticket, std::size_t bytes, Time now = {});
  Incoming& expected(std::uint64_t ticket, std::size_t bytes);
  void size(Incoming&, std::size_t bytes);

  const UdpPartialCredit credit_;
  std::map<std::uint64_t, Incoming> incoming_;  // by ticket
  std::size_t early_messages_ = 0;              // of them, and their bytes
  std::size_t early_bytes_ = 0;
  NumberRanges asked_;         // tickets
  NumberRanges taken_;         // of them
  std::vector<Message> free_;  // memory
};

}  // namespace ranvier::transport
