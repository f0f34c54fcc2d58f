#include "design/report.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "machine.h"

namespace ranvier::design {
namespace {

std::string human_time(double ns) {
  if (ns >= 1e9) return fmt::format("{:.4f} s", ns / 1e9);
  if (ns >= 1e6) return fmt::format("{:.4f} ms", ns / 1e6);
  return fmt::format("{:.3f} us", ns / 1e3);
}

std::string human_dollars(double dollars) {
  return dollars >= 1e6 ? fmt::format("${:.4f} M", dollars / 1e6) : fmt::format("${:.2f}", dollars);
}

std::string_view relation_name(Relation relation) {
  return relation == Relation::equal ? "=" : relation == Relation::at_most ? "<=" : ">=";
}

double gap(const Design& design) {
  return design.objective > 0 ? std::max(0.0, (design.objective - design.lower_bound) / design.objective) : 0;
}

nlohmann::json certificate_json(const Certificate& proof) {
  nlohmann::json terms = nlohmann::json::array();
  for (std::size_t k = 0; k < proof.step.terms.size(); ++k) {
    nlohmann::json loads = nlohmann::json::array();
    for (std::size_t l = 0; l < proof.step.terms[k].loads.size(); ++l) {
      const Load& load = proof.step.terms[k].loads[l];
      std::size_t variable = 0;
      while ((load.dimensions >> variable & 1) == 0) ++variable;
      loads.push_back({{"variable", variable}, {"amount", load.bytes}, {"weight", proof.load_weights[k][l]}});
    }
    terms.push_back(loads);
  }
  nlohmann::json cases = nlohmann::json::array();
  for (std::size_t s = 0; s < proof.step.cases.size(); ++s)
    cases.push_back({{"constant", proof.step.cases[s].constant_ns},
                     {"term_weights", proof.step.cases[s].weights},
                     {"weight", proof.case_weights[s]}});
  nlohmann::json constraints = nlohmann::json::array();
  for (std::size_t j = 0; j < proof.constraints.size(); ++j)
    constraints.push_back({{"text", proof.constraints[j].text},
                           {"coefficients", proof.constraints[j].coefficients},
                           {"relation", relation_name(proof.constraints[j].relation)},
                           {"limit", proof.constraints[j].limit},
                           {"price", proof.prices[j]}});
  return {{"variables", proof.step.dimensions},
          {"terms", terms},
          {"cases", cases},
          {"constraints", constraints},
          {"scale", proof.scale}};
}

}  // namespace

void print(const Options& options, const Question& question, const Design& design) {
  const DesignProblem& problem = question.problem;
  const auto busy = utilisation(question.traffic, design.bandwidth_gbps, design.time_ns);
  fmt::print("# {}: {} NPUs, {}\n", to_string(options.network), options.network.npus(),
             problem.objective == Objective::time ? "the least time" : "the least time x cost");
  fmt::print("{:<10} {:>12} {:>8} {:>14} {:>20}\n", "dimension", "GB/s", "busy", "$ per GB/s", "ns saved per GB/s");
  for (std::size_t i = 0; i < design.bandwidth_gbps.size(); ++i) {
    const NetworkShape one{.dimensions = {options.network.dimensions[i]}};
    const std::string share = std::isnan(busy[i]) ? "-" : fmt::format("{:.1f}%", busy[i] * 100);
    fmt::print("b{:<2} {:<6} {:>12.4f} {:>8} {:>14.5g} {:>20.6g}\n", i, to_string(one), design.bandwidth_gbps[i], share,
               options.unit_costs[i], design.marginal_ns_per_gbps[i]);
  }
  fmt::print("step  {}\ncost  {}\n", human_time(design.time_ns), human_dollars(design.cost_usd));
  for (const auto& [collective, group, orders] : chunk_orders(question, design)) {
    fmt::print("order of {} over {}:", name_of(collective), fmt::join(group, "x"));
    for (const auto& [dimensions, share] : orders) fmt::print("  {:.2f} % {}", share * 100, fmt::join(dimensions, ">"));
    fmt::print("\n");
  }
  if (problem.objective == Objective::time_cost) fmt::print("time x cost / 1e10  {:.8g}\n", design.objective);
  if (design.any_scale)
    fmt::print(
        "nothing is computed, so that any part of these bandwidths, the same of each, has the same time x cost; add a "
        "budget to say how much is to be spent\n");
  fmt::print("proof nothing is better than {:.9g}{}: a gap of at most {:.1e}\n", design.lower_bound,
             problem.objective == Objective::time ? " ns" : "", gap(design));
}

nlohmann::json to_json(const Options& options, const Question& question, const Design& design) {
  nlohmann::json orders = nlohmann::json::array();
  for (const auto& [collective, group, shares] : chunk_orders(question, design)) {
    nlohmann::json each = nlohmann::json::array();
    for (const auto& [dimensions, share] : shares) each.push_back({{"dimensions", dimensions}, {"share", share}});
    orders.push_back({{"collective", name_of(collective)}, {"group", group}, {"orders", each}});
  }
  std::vector<nlohmann::json> constraints;
  constraints.reserve(options.constraints.size());
  for (const Constraint& constraint : options.constraints) constraints.emplace_back(constraint.text);
  return {{"bandwidth_gbps", design.bandwidth_gbps},
          {"time_ns", design.time_ns},
          {"cost_usd", design.cost_usd},
          {"objective", design.objective},
          {"lower_bound", design.lower_bound},
          {"any_scale", design.any_scale},
          {"marginal_ns_per_gbps", design.marginal_ns_per_gbps},
          {"utilisation", utilisation(question.traffic, design.bandwidth_gbps, design.time_ns)},
          {"network", to_string(options.network)},
          {"npus", options.network.npus()},
          {"workloads", options.workloads},
          {"unit_cost", options.unit_costs},
          {"constraints", constraints},
          {"chunk_orders", orders},
          {"certificate", certificate_json(design.certificate)},
          {"environment", cli::environment()}};
}

}  // namespace ranvier::design
