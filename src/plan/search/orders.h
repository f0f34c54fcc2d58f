// What chunks of one collective send where each of them takes the dimensions in the order that suits the bandwidths.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ranvier/design.h"

namespace ranvier::plan {

// All orders of a group's dimensions are looked at.
constexpr std::size_t most_ordered_dimensions = 6;

// By dimension, with the mix of best_orders. Nothing unless there is a load for each set of the dimensions that it
// spans, as collective_cost gives them for mixed orders, or for more dimensions than best_orders takes.
std::optional<std::vector<double>> bytes_in_best_orders(const TrafficTerm&, std::span<const double> bandwidth_gbps);

}  // namespace ranvier::plan
