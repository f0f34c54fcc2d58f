// Which algorithm serves a collective best when the caller names none.
#pragma once

#include <cstddef>
#include <string_view>

#include "ranvier/types.h"

namespace ranvier::engine {

struct Choice {
  Collective collective = Collective::all_reduce;
  Rank world = 1;
  std::size_t bytes = 0;       // of the vector (all_reduce, reduce, broadcast), else of one rank's part
  bool uneven = false;         // parts differ in size between ranks
  bool shared_memory = false;  // all ranks on one host
  bool crowded = false;        // ranks share cores: see TransportTraits
};

// The name of a row of algorithms(). Every rank must ask the same to get the same.
std::string_view select_algorithm(const Choice&);

}  // namespace ranvier::engine
