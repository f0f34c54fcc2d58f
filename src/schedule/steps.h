// The vocabulary that builders are written in, so that each reads as its paper does.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "ranvier/schedule.h"

namespace ranvier::steps {

inline Step send(Rank to, Place what, std::uint32_t round, std::uint32_t chunks = 1) {
  return {.action = Action::send, .peer = to, .from = what, .to = {}, .round = round, .chunks = chunks};
}

inline Step recv(Rank from, Place into, std::uint32_t round, std::uint32_t chunks = 1) {
  return {.action = Action::recv, .peer = from, .from = {}, .to = into, .round = round, .chunks = chunks};
}

// own (+) what `from` sends -> into
inline Step recv_reduce(Rank from, Place own, Place into, std::uint32_t round, bool completes,
                        std::uint32_t chunks = 1) {
  return {.action = Action::recv_reduce,
          .peer = from,
          .from = own,
          .to = into,
          .round = round,
          .completes = completes,
          .chunks = chunks};
}

inline Step copy(Place from, Place into, std::uint32_t round, std::uint32_t chunks = 1) {
  return {.action = Action::copy, .peer = -1, .from = from, .to = into, .round = round, .chunks = chunks};
}

// into (+) from -> into
inline Step reduce(Place from, Place into, std::uint32_t round, bool completes) {
  return {.action = Action::reduce, .peer = -1, .from = from, .to = into, .round = round, .completes = completes};
}

// A rank, or the number of its chunk, on the circle of all ranks; `at` may lie up to one turn outside it.
constexpr Rank around(Rank at, Rank world) { return at < 0 ? at + world : at >= world ? at - world : at; }

// Chunks are numbered like the ranks that own them.
constexpr std::uint32_t chunk_of(Rank rank) { return static_cast<std::uint32_t>(rank); }

// Calls `emit(first chunk, how many)` for the one or two runs that so many chunks from `first` on make, on the circle
// of all of them.
template <class Emit>
void each_run(Rank first, Rank chunks, Rank world, Emit emit) {
  first = around(first, world);
  const Rank before_end = std::min(chunks, world - first);
  emit(chunk_of(first), chunk_of(before_end));
  if (before_end < chunks) emit(0u, chunk_of(chunks - before_end));
}

// Throws Error{usage} unless `algorithm` builds `collective` and the world and root make sense.
void check(std::string_view algorithm, Collective collective, std::initializer_list<Collective> built, Rank world,
           Rank root);

// What a world of one does, in every collective: nothing, in place.
std::vector<Step> alone();

}  // namespace ranvier::steps
