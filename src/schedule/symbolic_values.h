// What a buffer element holds while a schedule runs on symbols instead of numbers: whose contributions, in which order.
#pragma once

#include <utility>
#include <vector>

#include "ranvier/types.h"

namespace ranvier::schedule_detail {

// An arena of expressions over (rank, element of its input). Hashes stand for sets and trees, so that a reduction costs
// the same however many contributions it holds; a collision of two 64-bit hashes could hide a fault, and nothing else.
class Values {
 public:
  using Id = std::uint32_t;
  static constexpr Id nothing = 0;  // memory that nobody has written to

  using Contribution = std::pair<Rank, std::uint32_t>;
  struct Value {
    std::uint64_t members;  // the same for the same contributions, in whatever order they were reduced
    std::uint64_t bits;     // the same if also reduced in the same order, but for a (+) b being b (+) a: the same bits
    std::uint32_t count;    // contributions
    bool complete;          // a completing step has made it: averages are divided
    Contribution first;     // any one of them
    Id left, right;         // `nothing` in a contribution
  };

  Values() { values_.push_back({}); }
  Id contribution(Rank, std::uint32_t element);
  Id reduce(Id, Id, bool completes);
  const Value& operator[](Id id) const { return values_[id]; }

  static std::uint64_t members_of(Contribution);

  // All contributions, one entry each time that they were added.
  std::vector<Contribution> contributions(Id) const;

 private:
  std::vector<Value> values_;
};

}  // namespace ranvier::schedule_detail
