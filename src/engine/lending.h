// Whether operations of one shape lend what they send or have it copied (PeerMemory), by which was faster of late.
//
// What is lent saves the copies. What is copied goes through a few slots over and over, in which a sum comes back where
// the message lay (AnswersInPlace), so a line changes cores twice where a lent one, read by the peer and then written
// by its owner, does so three times. Which costs more depends on where the cores lie, and virtual ones move: two ranks'
// all_reduce of 1 MiB took 30 us lent and 40 copied while their cores shared a cache, 109 and 50 while they did not.
// Nothing but the clock tells one from the other. So both are tried at times, a few operations each, of which the
// fastest counts: what disturbs makes them longer.
//
// Every rank decides for what it sends itself; receivers take either. Ranks begin operations of one shape in the same
// order, so all of them try at once, and mostly find the same.
//
// Pure, of one thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

namespace ranvier::engine {

class Lending {
 public:
  // Whether the operation that begins now lends.
  bool begin() {
    const std::uint32_t turn = begun_++ % period;
    if (turn == 0) least_.fill(std::numeric_limits<std::uint64_t>::max());
    if (turn < 2 * tries) return turn % 2 != 0;
    if (turn == 2 * tries) lends_ = least_[1] <= least_[0];
    return lends_;
  }

  // How long an operation that began so took from begin to end.
  void took(bool lent, std::uint64_t ticks) { least_[lent ? 1 : 0] = std::min(least_[lent ? 1 : 0], ticks); }

  // Were one way twice as fast as the other, it would lose 2 % by trying.
  static constexpr std::uint32_t tries = 3;
  static constexpr std::uint32_t period = 150;

 private:
  std::uint32_t begun_ = 0;
  bool lends_ = true;
  std::array<std::uint64_t, 2> least_{};  // copied, lent; since the last trial began
};

}  // namespace ranvier::engine
