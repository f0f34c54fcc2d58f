// The fastest algorithm at each size.
#include <algorithm>
#include <limits>

#include "plan/simulate/collective_times.h"
#include "plan/tuner/possible.h"

namespace ranvier {

std::vector<FastestAlgorithm> fastest_algorithms(const Topology& topology, const std::vector<std::string>& algorithms,
                                                 std::size_t most_bytes, const SimulateOptions& options) {
  constexpr std::size_t least_bytes = 4;
  const Workload undivided{.name = "all ranks"};
  plan::CollectiveTimes times(undivided, topology, options);
  std::string refusal = "none was named";
  struct Candidate {
    std::size_t place;  // in `algorithms`
    double least_ns;
  };
  std::vector<FastestAlgorithm> table;
  for (std::size_t bytes = least_bytes; bytes <= most_bytes; bytes *= 2) {
    const Communication what{.collective = Collective::all_reduce, .bytes = static_cast<double>(bytes)};
    std::vector<Candidate> candidates;
    for (std::size_t i = 0; i < algorithms.size(); ++i)
      if (const auto least = plan::if_possible([&] { return times.at_least(what, algorithms[i]); }, refusal))
        candidates.push_back({i, *least});
    // What was the fastest at half of the size is tried first: most others are slower than it by their bounds.
    const auto rank = [&](const Candidate& each) {
      return !table.empty() && algorithms[each.place] == table.back().algorithm ? -1 : each.least_ns;
    };
    std::ranges::stable_sort(candidates, {}, rank);
    std::optional<std::size_t> best;
    double least = std::numeric_limits<double>::infinity();
    for (const Candidate& each : candidates) {
      if (each.least_ns > least * (1 + 1e-9)) continue;
      const auto ns = plan::if_possible([&] { return times.run(what, algorithms[each.place]).ns; }, refusal);
      // As fast within rounding: the earlier one in the list stays.
      if (!ns || *ns > least * (1 + 1e-9) || (*ns >= least * (1 - 1e-9) && best && *best < each.place)) continue;
      best = each.place;
      least = std::min(least, *ns);
    }
    if (!best) plan::refuse_all(refusal);
    if (!table.empty() && table.back().algorithm == algorithms[*best])
      table.back() = {bytes, algorithms[*best], least};
    else
      table.push_back({bytes, algorithms[*best], least});
  }
  if (table.empty()) plan::refuse_all(refusal);
  table.back().up_to = std::numeric_limits<std::size_t>::max();
  return table;
}

}  // namespace ranvier
