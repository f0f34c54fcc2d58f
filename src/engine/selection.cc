#include "engine/selection.h"

#include <algorithm>

namespace ranvier::engine {
namespace {

// Below this, everybody's whole vector to everybody wins: one round costs one latency, two cost two. Measured on 2 and
// 4 ranks (docs/benchmarks.md); the volume grows with the world, so the limit shrinks with it.
std::size_t one_round_limit(Rank world) { return (std::size_t{64} << 10) / static_cast<std::size_t>(world); }

// recursive_doubling sends whole vectors, log2 of the world of them.
constexpr std::size_t crowded_limit = 32 << 10;

// Up to this many ranks the links of all pairs are used at once; beyond, messages get too small and too many.
constexpr Rank most_direct = 8;

// Vectors whose chunks would be smaller than this are bound by latency, which grows with log2 of the world in
// halving_doubling and with the world itself in a ring.
constexpr std::size_t small_chunk = 32 << 10;

}  // namespace

std::string_view select_algorithm(const Choice& choice) {
  const std::size_t chunk = choice.bytes / static_cast<std::size_t>(std::max(choice.world, 1));
  switch (choice.collective) {
    case Collective::all_reduce:
    case Collective::barrier:
      // Where ranks share cores their work adds up, and the fewest messages win over the fewest rounds: 4 ranks over
      // tcp on 2 cores took 28 us for 4 B instead of 40.
      if (choice.crowded && !choice.shared_memory && choice.bytes <= crowded_limit) return "recursive_doubling";
      if (choice.world <= most_direct && choice.bytes <= one_round_limit(choice.world)) return "one_round";
      if (choice.world <= most_direct && choice.shared_memory) return "direct";
      return chunk < small_chunk ? "halving_doubling" : "ring";
    case Collective::reduce_scatter:
    case Collective::all_gather:
      if (choice.world <= most_direct) return "direct";
      return choice.bytes < small_chunk && !choice.uneven ? "halving_doubling" : "ring";
    case Collective::broadcast:
    case Collective::reduce:
      return "binomial_tree";
    case Collective::neighbor_exchange:
      return "neighbor_exchange";
    default:
      return "direct";
  }
}

}  // namespace ranvier::engine
