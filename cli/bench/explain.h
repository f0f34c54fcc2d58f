// `ranvier bench --explain`: what a schedule does, without any rank that does it.
#pragma once

#include "bench/options.h"

namespace ranvier::bench {

// Prints the drawing, proof, cost and contention of the algorithm that was named; where none was, a line each for all
// that build the collective. Returns the exit code: 1 if a schedule could not be proven. Throws Error{usage}.
int explain(const Options&);

}  // namespace ranvier::bench
