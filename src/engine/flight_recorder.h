// The last operations of a communicator with their times, in a ring that never allocates: what errors carry.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>

#include "base/spin_lock.h"
#include "base/ticks.h"
#include "ranvier/types.h"

namespace ranvier::engine {

class FlightRecorder {
 public:
  struct Entry {
    std::uint32_t sequence = 0;
    Collective collective = Collective::barrier;
    DType dtype = DType::u8;
    ReduceOp op = ReduceOp::sum;
    enum class State : std::uint8_t { unused, running, done, failed } state = State::unused;
    Rank peer = -1;  // of a message
    std::uint64_t bytes = 0;
    std::uint64_t started = 0;  // ticks
    std::uint64_t ended = 0;
  };

  // Notes the start of an operation; returns its place, for end(). A place is overwritten 256 operations later, and
  // then end() of the older operation does nothing.
  std::uint64_t start(const Entry&);
  void end(std::uint64_t place, bool failed);

  // The newest `most` operations, oldest first, one a line.
  std::string dump(std::size_t most = capacity) const;

  static constexpr std::size_t capacity = 256;

 private:
  mutable SpinLock lock_;
  std::array<Entry, capacity> entries_;
  std::uint64_t next_ = 0;
  TickScale scale_;
};

}  // namespace ranvier::engine
