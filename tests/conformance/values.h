// Small whole numbers as elements of every type. They are exact in all types, and so are their sums and products over
// eight ranks, in any order; what a collective must give is therefore known to the last bit.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ranvier/types.h"

namespace ranvier::conformance {

using Values = std::vector<double>;

// What `rank` contributes to case number `salt`: elements begin … begin + count.
Values values_of(DType, ReduceOp, Rank, std::size_t begin, std::size_t count, std::size_t salt);

// What `op` makes of each of `values` and the one of `others` beside it, into `values`, as arithmetic has it: integers
// wrap, booleans are or, and. Averages add.
void combine(ReduceOp, DType, Values& values, const Values& others);
// The sum of all ranks' values as their average.
double average_of(DType, double sum, Rank world);

std::vector<std::byte> encode(DType, std::span<const double>);
Values decode(DType, ConstBytes);

// How far an average may lie from the exact one, as a share of it: the reciprocal of the world is rounded as well.
double tolerance_of(DType);

}  // namespace ranvier::conformance
