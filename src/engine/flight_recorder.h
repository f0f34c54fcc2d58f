// The last operations of a communicator with their times, in a ring that never allocates: what errors carry.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/rank_names.h"
#include "base/ticks.h"
#include "ranvier/types.h"

namespace ranvier::engine {

// One thread at a time writes (whoever drives the engine), any thread reads. There is no lock: the words of an entry
// are atomics, so a reader may at worst see a line that is half of one operation and half of a newer one.
class FlightRecorder {
 public:
  enum class State : std::uint8_t { unused, running, done, failed };
  struct Entry {
    std::uint32_t sequence = 0;
    Collective collective = Collective::barrier;
    DType dtype = DType::u8;
    ReduceOp op = ReduceOp::sum;
    State state = State::running;
    Rank peer = -1;  // of a message
    std::uint64_t bytes = 0;
  };

  explicit FlightRecorder(RankNames rank = {}) : rank_(std::move(rank)) {}

  // Notes the start of an operation; returns its place, for end(). A place is overwritten 256 operations later, and
  // then end() of the older operation does nothing.
  std::uint64_t start(const Entry&);
  void end(std::uint64_t place, bool failed);

  // The newest `most` operations, oldest first, one a line; of the calls by which ranks met what did not end well, or
  // all where there is nothing else. `failing`: the place of one that ends by a failure now.
  std::string dump(std::size_t most = capacity, std::optional<std::uint64_t> failing = {}) const;

  // What has begun and not ended, oldest first.
  struct Running {
    Entry entry;
    double seconds = 0;  // since it began
    std::string text;    // "all_reduce #3", "recv of 40 B from rank 1"
  };
  std::vector<Running> running() const;
  // Of the collective of that number, while it is among the newest.
  std::optional<bool> has_ended(std::uint32_t sequence) const;

  static constexpr std::size_t capacity = 256;

 private:
  struct Place {
    std::atomic<std::uint64_t> kind;  // sequence, collective, dtype, op, state
    std::atomic<std::uint64_t> bytes;
    std::atomic<std::uint64_t> started;  // ticks
    std::atomic<std::uint64_t> ended;
    std::atomic<Rank> peer;
  };
  static std::uint64_t pack(const Entry&);
  static Entry unpack(std::uint64_t kind);
  std::string name_of_call(const Entry&) const;

  const RankNames rank_;
  std::array<Place, capacity> places_{};
  std::atomic<std::uint64_t> next_ = 0;
  TickScale scale_;
};

}  // namespace ranvier::engine
