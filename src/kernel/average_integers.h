// The average of integers: the one reduction that vector units have no instruction for.
#pragma once

#include "ranvier/kernel.h"

namespace ranvier::kernel {

// Null for types that are not integers.
ReduceFunction average_integers(DType);

}  // namespace ranvier::kernel
