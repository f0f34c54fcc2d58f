// What algorithms really take where the model of the links has several that come near each other. It counts messages
// and bytes, and knows neither caches nor whose turn it is on a core: of four ranks on two cores it took, of those that
// it had for equal, one that needed 1.1 to 1.8 times as long as another. So they are tried when the ranks meet, after
// the links have been measured: small vectors, a few operations each, the slow ones given up first.
//
// Of STAR-MPI's measure-select (see lesson.h) what can be done before a program calls anything.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "engine/selection.h"
#include "ranvier/communicator.h"

namespace ranvier::engine {

// How much is tried.
struct TrialLimits {
  double seconds = 0.5;       // in all; what comes last has none any more
  double operation = 150e-6;  // no larger vectors where one takes longer: there bytes count, as the model does
  std::size_t least_bytes = 64;
  std::size_t most_bytes = 1 << 20;
};

// All ranks call it, of one selection; each gets the same. The collectives that training waits for most come first.
// `run` runs one to its end, with the algorithm that it names, and throws what that fails with; `clock` is in seconds.
std::vector<Trial> try_contenders(Selection&, const TrialLimits&, const std::function<void(const Request&)>& run,
                                  const std::function<double()>& clock);

}  // namespace ranvier::engine
