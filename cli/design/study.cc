#include "design/study.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "design/problem.h"
#include "machine.h"

namespace ranvier::design {
namespace {

// 4,096 NPUs, each 32 of which share a switch between pods, in ever more dimensions below it.
constexpr std::array<const char*, 3> networks{"RI(128)_SW(32)", "RI(16)_FC(8)_SW(32)", "RI(4)_FC(8)_RI(4)_SW(32)"};
constexpr std::array<const char*, 5> workloads{"resnet50", "dlrm", "turing-nlg", "gpt3", "msft-1t"};

struct Row {
  std::string workload;
  std::string network;
  Design design;
  double nic_usd = 0;
  std::vector<double> busy = {};
  double even_ns = 0;  // with the same bandwidth in every dimension
};

Row design_one(const Options& options, const char* workload, const char* network) {
  Options one = options;
  one.network = parse_network(network);
  one.workloads = {workload};
  one.weights = {1};
  const std::size_t dimensions = one.network.dimensions.size();
  const Constraint budget = budget_constraint(options.budget, dimensions);
  one.constraints = {budget};
  one.unit_costs = unit_costs(one.network, options.costs);
  Question question = question_of(one, load_workloads(one));
  Row row{.workload = workload, .network = network, .design = solve(one, question, question.problem)};
  for (std::size_t i = 0; i < dimensions; ++i)
    if (one.network.dimensions[i].block == Block::switched)
      row.nic_usd += options.costs.tiers[static_cast<int>(one.network.dimensions[i].tier)].nic *
                     static_cast<double>(one.network.npus()) * row.design.bandwidth_gbps[i];
  row.busy = utilisation(question.traffic, row.design.bandwidth_gbps, row.design.time_ns);
  row.even_ns =
      step_ns(question.problem.step, std::vector<double>(dimensions, budget.limit / static_cast<double>(dimensions)));
  return row;
}

std::string joined(const std::vector<double>& values, double times, const char* unit) {
  std::string text;
  for (const double value : values) text += fmt::format("{}{:.1f}{}", text.empty() ? "" : ", ", value * times, unit);
  return text;
}

}  // namespace

int study(const Options& options, const cli::JsonFile& file) {
  nlohmann::json rows = nlohmann::json::array();
  const bool prints = options.json_file != "-";
  for (const Objective objective : {Objective::time, Objective::time_cost}) {
    Options one = options;
    one.objective = objective;
    const char* goal = objective == Objective::time ? "time" : "time-cost";
    if (prints)
      fmt::print(
          "{}Objective {}, {} per NPU:\n\n| workload | network | GB/s by dimension | busy | step, ms | even split, ms "
          "| network, $ M | of it NICs, $ M |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n",
          objective == Objective::time ? "" : "\n", goal, options.budget);
    for (const char* workload : workloads)
      for (const char* network : networks) {
        const Row row = design_one(one, workload, network);
        if (prints)
          fmt::print("| {} | {} | {} | {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} |\n", row.workload, row.network,
                     joined(row.design.bandwidth_gbps, 1, ""), joined(row.busy, 100, " %"), row.design.time_ns / 1e6,
                     row.even_ns / 1e6, row.design.cost_usd / 1e6, row.nic_usd / 1e6);
        rows.push_back({{"objective", goal},
                        {"workload", row.workload},
                        {"network", row.network},
                        {"bandwidth_gbps", row.design.bandwidth_gbps},
                        {"utilisation", row.busy},
                        {"time_ns", row.design.time_ns},
                        {"even_split_ns", row.even_ns},
                        {"cost_usd", row.design.cost_usd},
                        {"nic_usd", row.nic_usd}});
      }
  }
  file.write({{"rows", rows}, {"environment", cli::environment()}});
  return 0;
}

}  // namespace ranvier::design
