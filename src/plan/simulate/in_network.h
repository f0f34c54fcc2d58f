// Averages whose sums the switches of a network make, as schedules with the time of the sum, and not the sum.
#pragma once

#include <cstddef>

#include "plan/simulate/groups.h"
#include "ranvier/simulate.h"

namespace ranvier::plan {

// Of all groups at once, for vectors of so many slices. Throws Error{usage} where no switch joins ranks, or where
// groups have uneven parts of a dimension.
SwitchSum summed_by_switches(const Topology&, const Grouping&, std::size_t slices);
// As many as make a difference.
std::size_t slices_of_sum(double bytes, std::size_t slice_bytes);

}  // namespace ranvier::plan
