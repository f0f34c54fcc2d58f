#include "design/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "ranvier/error.h"
#include "ranvier/workload_file.h"
#include "simulate/workload.h"

namespace ranvier::design {
namespace {

// Not what is ready-made, whatever stands in the folder; else where there is one of that name, or where it looks so.
bool is_file(const std::string& name) {
  if (std::ranges::count(workload_names(), std::string_view(name).substr(0, name.find(':'))) > 0) return false;
  std::error_code no_name_of_a_file;
  return std::filesystem::is_regular_file(name, no_name_of_a_file) || name.ends_with(".txt") ||
         name.find('/') != std::string::npos;
}

// Whose groups are those of a communicator's file.
bool is_astra_text(const std::string& name) {
  return is_file(name) && !name.ends_with(".toml") && !names_a_trace(name);
}

Source load(const Options& options, const std::string& name) {
  if (names_a_trace(name)) return simulation::load_trace(name, options.communicator_file);
  if (!is_astra_text(name)) return simulation::load_workload(name);
  return read_astra_workload(name, options.communicator_file.empty() ? AstraGroups::header : AstraGroups::elsewhere);
}

// One workload on the network of the options: as a graph where that is asked for or known, and each of its collectives.
class Placed {
 public:
  Placed(const Options& options, const std::string& name, const Source& source)
      : options_(options), trace_(std::get_if<ExecutionTrace>(&source)) {
    if (trace_ != nullptr) return;
    workload_ = rescaled(std::get<Workload>(source), options.network.npus());
    const bool has_communicator = is_astra_text(name) && !options.communicator_file.empty();
    placement_ = has_communicator ? read_libra_communicator(options.communicator_file, options.network)
                                  : place(workload_.degrees, options.network);
  }

  StepGraph graph() const {
    return trace_ != nullptr ? step_graph(*trace_, options_.network, options_.step)
                             : step_graph(workload_, placement_, options_.network, options_.step);
  }
  StepTime step() const {
    return trace_ != nullptr ? one_after_another(graph())
                             : step_time(workload_, placement_, options_.network, options_.step);
  }

  // All that it sends, however long it waits for that.
  StepTime traffic() const {
    if (trace_ != nullptr) return one_after_another(graph());
    Workload alone = workload_;
    alone.fills = 0;
    return step_time(alone, placement_, options_.network, options_.step);
  }

  template <class Visit>
  void for_each_collective(Visit visit) const {
    if (trace_ != nullptr) {
      const auto groups = place(*trace_, options_.network);
      for (std::size_t i = 0; i < groups.size(); ++i)
        if (trace_->operations[i].communication) visit(*trace_->operations[i].communication, groups[i]);
      return;
    }
    for (const Layer& layer : workload_.layers)
      for (const Phase* phase : {&layer.forward, &layer.input_gradient, &layer.weight_gradient})
        for (const Communication& each : phase->communications) visit(each, placement_.of(each.role));
  }

 private:
  const Options& options_;
  const ExecutionTrace* trace_;  // null: the workload
  Workload workload_;
  Placement placement_;
};

}  // namespace

std::vector<Source> load_workloads(const Options& options) {
  const auto asks = [](const std::string& name) { return is_astra_text(name) || names_a_trace(name); };
  if (!options.communicator_file.empty() && std::ranges::none_of(options.workloads, asks))
    throw Error(ErrorKind::usage,
                "--communicator is of workloads in ASTRA-sim's text and of Chakra traces; leave it out");
  std::vector<Source> sources;
  for (const auto& name : options.workloads) sources.push_back(load(options, name));
  return sources;
}

Question question_of(const Options& options, const std::vector<Source>& sources) {
  Question question{.problem = {.step = {}, .constraints = options.constraints, .objective = options.objective}};
  StepTime& step = question.problem.step;
  if (!options.traffic_file.empty()) {
    step = read_traffic(options.traffic_file, options.network.dimensions.size());
    question.traffic = step;
  } else {
    std::vector<StepTime> steps;
    std::vector<StepTime> traffic;
    std::vector<StepGraph> graphs;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const Placed placed(options, options.workloads[i], sources[i]);
      if (options.overlap)
        graphs.push_back(placed.graph());
      else
        steps.push_back(placed.step());
      traffic.push_back(placed.traffic());
      if (options.step.order == ChunkOrder::mixed)
        placed.for_each_collective([&](const Communication& what, const GroupSizes& group) {
          if (!(what.bytes > 0)) return;
          const bool known = std::ranges::any_of(question.sent, [&](const Question::Sent& other) {
            return other.what.collective == what.collective && other.group == group;
          });
          if (!known) question.sent.push_back({what, group});
        });
    }
    if (options.overlap)
      question.graph = weighted_sum(graphs, options.weights);
    else
      step = weighted_sum(steps, options.weights);
    question.traffic = weighted_sum(traffic, options.weights);
  }
  if (options.nics) question.traffic = with_any_failure(question.traffic, options.network, *options.nics);
  if (options.nics && question.graph)
    question.graph = with_any_failure(*question.graph, options.network, *options.nics);
  else if (options.nics)
    step = with_any_failure(step, options.network, *options.nics);
  for (const double cost : options.unit_costs)
    question.problem.dollars_per_gbps.push_back(cost * static_cast<double>(options.network.npus()));
  return question;
}

std::vector<ChunkOrders> chunk_orders(const Question& question, const Design& design) {
  std::vector<ChunkOrders> found;
  for (const auto& [what, group] : question.sent)
    if (auto orders = best_orders(what, group, design.bandwidth_gbps); !orders.empty())
      found.push_back({what.collective, group, std::move(orders)});
  return found;
}

Design solve(const Options& options, const Question& question, DesignProblem& problem) {
  const DesignSolver solver = [&options](DesignProblem& each) {
    return options.link_gbps.empty() ? ranvier::solve(each) : solve_discrete(each, options.link_gbps);
  };
  return question.graph ? solve_overlapped(problem, *question.graph, solver) : solver(problem);
}

}  // namespace ranvier::design
