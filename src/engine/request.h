// Turns a request into the shape of its program, and refuses what cannot be meant.
#pragma once

#include <cstdint>

#include "base/rank_names.h"
#include "engine/programs.h"
#include "ranvier/communicator.h"

namespace ranvier::engine {

// The shape of `request` on this rank; its algorithm is still to be chosen. Throws Error{usage} naming the argument
// that is wrong and the value that would be right.
Shape shape_of(const Request& request, Rank rank, Rank world, const RankNames& names = {});

// What the shape of a neighbor_exchange still lacks until its algorithm is chosen, whose grid says how many directions
// there are: the sizes of their parts. Throws as shape_of does.
void share_among_directions(Shape& shape, const Request& request, Rank rank, const RankNames& names = {});

// Whether any byte is of both.
inline bool overlap(const ConstTypedSpan& a, const ConstTypedSpan& b) {
  const auto first = reinterpret_cast<std::uintptr_t>(a.data), second = reinterpret_cast<std::uintptr_t>(b.data);
  return first + a.bytes() > second && second + b.bytes() > first;
}

// Of the vectors that it moves. Who is not the root has only one of the two, and an empty part may have no memory.
inline DType dtype_of(const Request& request) {
  const bool gathers = request.collective == Collective::gather || request.collective == Collective::reduce;
  return gathers ? request.input.dtype : request.output.dtype;
}

constexpr bool reduces(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce ||
         collective == Collective::reduce_scatter || collective == Collective::barrier;
}
constexpr bool has_root(Collective collective) {
  return collective == Collective::reduce || collective == Collective::broadcast || collective == Collective::gather ||
         collective == Collective::scatter;
}
// Whether all ranks pass the same count, which the message header then carries; else it carries each link's bytes.
constexpr bool has_common_count(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce ||
         collective == Collective::broadcast || collective == Collective::barrier;
}

}  // namespace ranvier::engine
