#include "hwy/highway.h"
#include "ranvier/kernel.h"

namespace ranvier::kernel {

// Highway numbers better targets lower, and dispatch takes the best.
const char* instruction_set() { return hwy::TargetName(hwy::SupportedAndGeneratedTargets().front()); }

}  // namespace ranvier::kernel
