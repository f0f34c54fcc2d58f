#include "design/enumerate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "design/problem.h"
#include "machine.h"
#include "ranvier/error.h"

namespace ranvier::design {
namespace {

constexpr std::size_t shown = 10;

struct Candidate {
  std::string network;
  Design design;
};

// The best first; of objectives that differ by no more than what is proven of them, the cheapest.
void sort(std::vector<Candidate>& candidates) {
  constexpr double proven = 1e-6;
  std::ranges::stable_sort(candidates, {}, [](const Candidate& each) { return each.design.objective; });
  for (auto first = candidates.begin(); first != candidates.end();) {
    const double most = first->design.objective * (1 + proven);
    const auto last =
        std::find_if(first, candidates.end(), [most](const Candidate& each) { return each.design.objective > most; });
    std::stable_sort(first, last,
                     [](const Candidate& a, const Candidate& b) { return a.design.cost_usd < b.design.cost_usd; });
    first = last;
  }
}

// Of one shape; none where the workload does not fit it.
struct Tried {
  std::optional<Design> design;
  std::string refusal;
};

Tried design_of(const Options& options, const std::vector<Source>& sources, const NetworkShape& shape) {
  Options one = options;
  one.network = shape;
  one.constraints = {budget_constraint(options.budget, shape.dimensions.size())};
  one.unit_costs = unit_costs(shape, options.costs);
  try {
    Question question = question_of(one, sources);
    return {.design = solve(one, question, question.problem), .refusal = {}};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    return {.design = std::nullopt, .refusal = error.what()};
  }
}

// Shapes have nothing to do with one another: on all cores, which each take the next one. Says now and then how far it
// is.
std::vector<Tried> try_all(const Options& options, const std::vector<Source>& sources,
                           const std::vector<NetworkShape>& all) {
  using Clock = std::chrono::steady_clock;
  constexpr auto pause = std::chrono::seconds(5);
  std::vector<Tried> tried(all.size());
  std::atomic<std::size_t> next = 0;
  std::exception_ptr problem;
  std::mutex of_problem;
  const auto work = [&](bool speaks) {
    auto said = Clock::now();
    for (std::size_t i = next++; i < all.size(); i = next++) {
      try {
        tried[i] = design_of(options, sources, all[i]);
      } catch (...) {
        const std::lock_guard lock(of_problem);
        problem = std::current_exception();
        next = all.size();
      }
      if (!speaks || Clock::now() - said < pause) continue;
      said = Clock::now();
      cli::say(fmt::format("{} of {} shapes\n", std::min(next.load(), all.size()), all.size()));
    }
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < std::min<std::size_t>(all.size(), std::max(1, cli::usable_cores())); ++i)
      others.emplace_back(work, false);
    work(true);
  }
  if (problem) std::rethrow_exception(problem);
  return tried;
}

}  // namespace

int enumerate(const Options& options, const cli::JsonFile& file) {
  const auto all = shapes(*options.enumeration);
  std::vector<Candidate> candidates;
  std::string last_refusal;
  auto tried = try_all(options, load_workloads(options), all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (tried[i].design)
      candidates.push_back({to_string(all[i]), std::move(*tried[i].design)});
    else
      last_refusal = std::move(tried[i].refusal);
  }
  if (candidates.empty())
    throw Error(ErrorKind::usage,
                all.empty() ? fmt::format("{} NPUs cannot be split into {} to {} dimensions", options.enumeration->npus,
                                          options.enumeration->fewest_dimensions, options.enumeration->most_dimensions)
                            : fmt::format("no shape suits the workload; the last one: {}", last_refusal));
  sort(candidates);
  if (!options.json_file.empty()) {
    nlohmann::json designs = nlohmann::json::array();
    for (const auto& [network, design] : candidates)
      designs.push_back({{"network", network},
                         {"bandwidth_gbps", design.bandwidth_gbps},
                         {"marginal_ns_per_gbps", design.marginal_ns_per_gbps},
                         {"time_ns", design.time_ns},
                         {"cost_usd", design.cost_usd},
                         {"objective", design.objective},
                         {"lower_bound", design.lower_bound}});
    file.write({{"shapes", all.size()}, {"designs", designs}, {"environment", cli::environment()}});
    if (options.json_file == "-") return 0;
  }
  fmt::print("# {} shapes of {} NPUs, {} of which suit the workload; the best\n{:<28} {:>12} {:>12}  GB/s\n",
             all.size(), options.enumeration->npus, candidates.size(), "network", "step ms", "cost $ M");
  for (std::size_t i = 0; i < std::min(shown, candidates.size()); ++i) {
    const auto& [network, design] = candidates[i];
    fmt::print("{:<28} {:>12.4f} {:>12.4f}  {:.2f}\n", network, design.time_ns / 1e6, design.cost_usd / 1e6,
               fmt::join(design.bandwidth_gbps, ", "));
  }
  return 0;
}

}  // namespace ranvier::design
