// One lane between two ranks, the two ends of it: what was accepted and has not been acknowledged, and what has arrived
// and was not used. Bytes have their place in the lane as their number, so that packets may come in any order, twice,
// or cut up anew.
//
// Both ends keep the bytes in a ring. The receiver's is the credit of the lane: a sender is never more
// than that ahead of the caller that uses the bytes, so that a slow one is not flooded.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ranvier/transport.h"
#include "transport/mirrored_memory.h"
#include "transport/number_ranges.h"

namespace ranvier::transport {

class UdpSendLane {
 public:
  // Of the rings here and at the other end.
  UdpSendLane(std::size_t bytes, std::size_t peer_bytes) : bytes_(bytes), peer_bytes_(peer_bytes), limit_(peer_bytes) {}

  // Transport::try_send; copies what it accepts.
  std::size_t try_send(ConstBytes head, ConstBytes body);

  // The next bytes to send, at most `most` of them: what was lost first. Empty if there is nothing, or no credit.
  struct Piece {
    std::uint64_t offset = 0;
    ConstBytes bytes;
    bool again = false;
  };
  Piece next(std::size_t most) const;
  void sent(const Piece&);
  bool has_next() const { return !again_.empty() || sent_ < credit(); }
  bool waits_for_credit() const { return sent_ < accepted_ && sent_ >= limit_; }

  void acknowledged(NumberRange);
  // Has to be sent again, but for what has arrived by now.
  void lost(NumberRange);
  // The receiver takes bytes up to here. False if it cannot mean that.
  bool set_limit(std::uint64_t limit);

  std::size_t unacknowledged() const { return static_cast<std::size_t>(accepted_ - acknowledged_); }
  // Whether a try_send was refused and would not be now.
  bool has_room_again();

 private:
  std::uint64_t credit() const { return accepted_ < limit_ ? accepted_ : limit_; }
  std::size_t room() const { return bytes_ - unacknowledged(); }
  // Less is not accepted where more is offered: it would be a call for every packet that is acknowledged.
  std::size_t worth_a_call() const { return bytes_ / 16; }

  const std::size_t bytes_;
  const std::size_t peer_bytes_;
  MirroredMemory memory_;           // from the first byte on
  std::uint64_t base_ = 0;          // the offset at the memory's beginning
  std::uint64_t acknowledged_ = 0;  // all before it
  std::uint64_t sent_ = 0;          // all before it at least once
  std::uint64_t accepted_ = 0;
  std::uint64_t limit_;
  NumberRanges arrived_;  // beyond acknowledged_
  NumberRanges again_;
  bool refused_ = false;
};

class UdpReceiveLane {
 public:
  explicit UdpReceiveLane(std::size_t bytes) : bytes_(bytes), told_limit_(bytes) {}

  // False if the sender had no credit for them: then nothing was taken.
  bool arrived(std::uint64_t offset, ConstBytes bytes);
  // All that is in order and not released; valid until release.
  ConstBytes view() const;
  void release(std::size_t bytes);

  std::size_t ready() const { return static_cast<std::size_t>(ready_ - released_); }
  // Of the next so many that have not been released, those that have not arrived.
  std::size_t missing(std::size_t bytes) const;
  // Up to which offset the peer may send, and whether that is much more than it was told last.
  std::uint64_t limit() const { return released_ + bytes_; }
  bool limit_is_news() const { return limit() - told_limit_ >= bytes_ / 4; }
  void told(std::uint64_t limit) { told_limit_ = limit; }

 private:
  const std::size_t bytes_;
  MirroredMemory memory_;
  std::uint64_t base_ = 0;
  std::uint64_t released_ = 0;
  std::uint64_t ready_ = 0;  // all before it has arrived
  std::uint64_t told_limit_;
  NumberRanges beyond_;  // what has arrived behind a gap
};

}  // namespace ranvier::transport
