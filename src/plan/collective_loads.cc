// The published model, and what it leaves out where that is wanted.
//
// Mixed orders. A chunk of m bytes that takes the dimensions in some order sends m' (g_i - 1) / g_i in dimension i,
// with m' what the dimensions before have left of it. With F(S) = m (1 - product of 1/g_i over S) that is F(before and
// i) - F(before): the marginal of a submodular function. The shares that mixes of orders can reach are therefore its
// base polytope (J. Edmonds: Submodular functions, matroids, and certain polyhedra. 1970), and a mix that ends within t
// on bandwidths b exists exactly if t b(S) >= F(all) - F(all without S) for every set S of dimensions: a load for each
// set, linear in b, so that bandwidth and order are chosen together by the same convex program. (Chunks in orders of
// their own: S. Rashidi, W. Won, S. Srinivasan, S. Sridharan, T. Krishna: Themis: A network bandwidth-aware collective
// scheduling policy for distributed training of DL models. ISCA 2022.)
//
// Reduction in a switch. NPUs send their m bytes up once. In the outermost dimension of a group the sum comes back: m
// bytes each way instead of 2 m (g-1)/g. Further in, a reduce_scatter sends m up and m/g come down, and the all_gather
// on the way back the reverse: m (1 + 1/g) each way, which for pairs is more than without, so that they do without. (R.
// L. Graham et al.: Scalable hierarchical aggregation protocol (SHArP): a hardware architecture for efficient data
// reduction. COMHPC 2016.)
#include "plan/collective_loads.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "plan/search/orders.h"
#include "ranvier/error.h"

namespace ranvier::plan {
namespace {

template <class Value>
Value setting(const std::vector<Value>& values, std::size_t i, Value otherwise) {
  return i < values.size() ? values[i] : otherwise;
}

bool shrinks(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
         collective == Collective::all_gather;
}

// Messages that follow one another: around a ring, straight to each other, by halving and doubling through a switch.
double messages(Collective collective, Block block, int size, bool reduces_in_network) {
  if (collective == Collective::send || collective == Collective::recv) return 1;
  const double times = collective == Collective::all_reduce ? 2 : 1;
  if (reduces_in_network) return times;
  if (block == Block::ring) return times * (size - 1);
  if (block == Block::fully_connected) return times;
  return times * static_cast<double>(std::bit_width(static_cast<unsigned>(size - 1)));
}

std::vector<Load> in_any_order(const Communication& communication, const GroupSizes& group) {
  std::vector<std::size_t> spanned;
  double whole = communication.bytes * (communication.collective == Collective::all_reduce ? 2 : 1);
  for (std::size_t i = 0; i < group.size(); ++i) {
    if (group[i] < 2) continue;
    spanned.push_back(i);
    if (communication.collective == Collective::all_gather) whole *= group[i];
  }
  std::vector<Load> loads;
  for (std::uint32_t set = 1; set < std::uint32_t{1} << spanned.size(); ++set) {
    double inside = 1;
    double outside = 1;
    std::uint32_t dimensions = 0;
    for (std::size_t j = 0; j < spanned.size(); ++j) {
      const bool chosen = (set >> j & 1) != 0;
      (chosen ? inside : outside) /= group[spanned[j]];
      if (chosen) dimensions |= std::uint32_t{1} << spanned[j];
    }
    loads.push_back({.dimensions = dimensions, .bytes = whole * outside * (1 - inside)});
  }
  return loads;
}

void check(const GroupSizes& group, const NetworkShape& shape, const StepOptions& options, std::string_view whose) {
  if (group.size() != shape.dimensions.size())
    throw Error(ErrorKind::usage, fmt::format("nothing says which dimensions the collectives of {} span", whose));
  if (options.order == ChunkOrder::fixed) return;
  const NetworkEffects& effects = options.effects;
  if (effects.partial_groups || !effects.oversubscription.empty() ||
      std::ranges::count(effects.in_network_reduction, true) > 0)
    throw Error(
        ErrorKind::usage,
        "mixed chunk orders are known to be optimal only where each dimension is what its bandwidth says: leave "
        "out oversubscription, partial groups and in-network reduction, or the orders");
  const auto spanned = std::ranges::count_if(group, [](int size) { return size > 1; });
  if (static_cast<std::size_t>(spanned) > most_ordered_dimensions)
    throw Error(ErrorKind::usage,
                fmt::format("collectives of {} span {} of the dimensions {}, and mixed chunk orders are known of up to "
                            "{}: leave out --chunk-order, or join dimensions",
                            whose, spanned, to_string(shape), most_ordered_dimensions));
}

}  // namespace

CollectiveCost collective_cost(const Communication& communication, const GroupSizes& group, const NetworkShape& shape,
                               const StepOptions& options, std::string_view whose) {
  check(group, shape, options, whose);
  CollectiveCost cost;
  const NetworkEffects& effects = options.effects;
  std::size_t outermost = 0;
  for (std::size_t i = 0; i < group.size(); ++i)
    if (group[i] > 1) outermost = i;
  const bool in_order = options.order == ChunkOrder::fixed || !shrinks(communication.collective);
  if (!in_order) cost.term.loads = in_any_order(communication, group);

  // Of a pipeline some stages have the next one in the innermost dimension, and others further out: all wait for the
  // slowest.
  const bool is_boundary = communication.collective == Collective::send && communication.role == Role::pipeline;
  auto bytes = bytes_by_dimension(is_boundary ? Collective::neighbor_exchange : communication.collective,
                                  communication.bytes, group);
  double left = communication.bytes;  // of an all_reduce, on entering the dimension
  for (std::size_t i = 0; i < group.size(); ++i) {
    const int size = group[i];
    if (size < 2 || bytes[i] == 0) continue;
    const auto& dimension = shape.dimensions[i];
    const double reduced = i == outermost ? left : left * (1 + 1.0 / size);
    const bool reduces = communication.collective == Collective::all_reduce && dimension.block == Block::switched &&
                         setting(effects.in_network_reduction, i, false) && reduced <= bytes[i];
    if (reduces) bytes[i] = reduced;
    left /= size;
    if (effects.partial_groups && dimension.block == Block::fully_connected)
      bytes[i] *= static_cast<double>(dimension.size - 1) / (size - 1);
    bytes[i] *= setting(effects.oversubscription, i, 1.0);
    cost.latency_ns +=
        messages(communication.collective, dimension.block, size, reduces) * setting(effects.latency_ns, i, 0.0);
    if (in_order) cost.term.loads.push_back({.dimensions = std::uint32_t{1} << i, .bytes = bytes[i]});
  }
  return cost;
}

}  // namespace ranvier::plan

namespace ranvier {

StepTime step_time(const Workload& workload, const Placement& placement, const NetworkShape& shape,
                   const StepOptions& options) {
  StepTime step{.dimensions = shape.dimensions.size(),
                .terms = {},
                .cases = {{.constant_ns = workload.idle_ns + bubble_ns(workload)}}};
  StepCase& one = step.cases.front();
  for (const Layer& layer : workload.layers)
    for (const Phase* phase : {&layer.forward, &layer.input_gradient, &layer.weight_gradient}) {
      one.constant_ns += phase->compute_ns;
      for (const Communication& communication : phase->communications) {
        auto cost = plan::collective_cost(communication, placement.of(communication.role), shape, options,
                                          fmt::format("layer {}", layer.name));
        const double times = phase == &layer.weight_gradient ? 1 : 1 + workload.fills;
        one.constant_ns += times * cost.latency_ns;
        if (cost.term.loads.empty()) continue;
        step.terms.push_back(std::move(cost.term));
        one.weights.push_back(times);
      }
    }
  return step;
}

}  // namespace ranvier
