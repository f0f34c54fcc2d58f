// Compiled programs by shape, so that an operation that comes again costs a look-up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "ranvier/schedule.h"

namespace ranvier::engine {

// Everything that a program depends on, but the world it is for.
struct Shape {
  Collective collective = Collective::all_reduce;
  std::uint8_t algorithm = 0;  // index in algorithms()
  bool in_place = false;
  Rank root = 0;
  std::vector<Rank> dims;  // see ScheduleRequest
  std::vector<bool> periodic;
  std::uint32_t element_bytes = 4;
  std::size_t count = 0;                                 // as even_layout takes it
  std::vector<std::size_t> input_splits, output_splits;  // elements per chunk where uneven
  std::vector<std::size_t> parts;                        // of a rank that holds its own only: elements of Layout::parts

  friend bool operator==(const Shape&, const Shape&) = default;
};

struct ReadyProgram {
  std::shared_ptr<const Program> program;
  std::size_t bytes_to_send = 0;
  std::size_t bytes_to_receive = 0;
  std::size_t most_to_one = 0;  // of bytes_to_send, what goes to the peer that gets most
  std::size_t slice_bytes = 0;  // a power of two
  bool lends = false;           // it may, and some send is worth it: see PeerMemory
};

class ProgramCache {
 public:
  // Of the transport that programs are for: see TransportTraits, AnswersInPlace and CompileOptions.
  struct Limits {
    std::size_t slice_bytes = 0;
    std::size_t buffered_bytes = 0;
    std::uint32_t unanswered = 0;
    std::size_t ahead_bytes = 0;
    std::size_t lead_bytes = 0;
  };
  ProgramCache(Rank rank, Rank world, const Limits& limits) : rank_(rank), world_(world), limits_(limits) {}

  // Thread-safe. Throws Error{usage} when the algorithm cannot serve the world.
  ReadyProgram find(const Shape&);

  // More shapes than this, and the half of them that was used longest ago goes.
  static constexpr std::size_t capacity = 1024;

 private:
  struct Hash {
    std::size_t operator()(const Shape&) const;
  };
  struct Entry {
    ReadyProgram program;
    std::uint64_t used = 0;  // at the so many-th use of all
  };
  ReadyProgram make(const Shape&) const;
  void drop_older_half();

  const Rank rank_;
  const Rank world_;
  const Limits limits_;
  std::mutex mutex_;
  std::unordered_map<Shape, Entry, Hash> programs_;
  std::uint64_t uses_ = 0;
};

}  // namespace ranvier::engine
