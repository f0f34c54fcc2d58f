// How long a design takes, from traffic to proof, beside NLopt's sequential quadratic programming on the same problem,
// which ends without a proof.
#include <benchmark/benchmark.h>

#include "plan/libra_cases.h"
#include "plan/nlopt_peer.h"
#include "ranvier/design_search.h"

namespace ranvier {
namespace {

DesignProblem problem_of(Objective objective) {
  DesignProblem problem = gpt3_4d();
  problem.constraints = constraints({"b0+b1+b2+b3=500"}, 4);
  problem.objective = objective;
  return problem;
}

void design(benchmark::State& state, Objective objective) {
  const DesignProblem problem = problem_of(objective);
  double objective_value = 0;
  for (auto _ : state) objective_value = solve(problem).objective;
  state.counters["objective"] = objective_value;
}
BENCHMARK_CAPTURE(design, time, Objective::time)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(design, time_cost, Objective::time_cost)->Unit(benchmark::kMillisecond);

void nlopt(benchmark::State& state, Objective objective) {
  const DesignProblem problem = problem_of(objective);
  double objective_value = 0;
  for (auto _ : state) objective_value = nlopt_objective(problem, {125, 125, 125, 125});
  state.counters["objective"] = objective_value;
}
BENCHMARK_CAPTURE(nlopt, time, Objective::time)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(nlopt, time_cost, Objective::time_cost)->Unit(benchmark::kMillisecond);

// Overlap needs several solves.
void overlapped(benchmark::State& state) {
  const NetworkShape shape = parse_network("RI(4)_FC(8)_RI(4)_SW(32)");
  const Workload workload = make_workload("gpt3");
  const StepGraph graph = step_graph(workload, place(workload.degrees, shape), shape);
  for (auto _ : state) {
    DesignProblem problem = problem_of(Objective::time);
    benchmark::DoNotOptimize(solve_overlapped(problem, graph));
  }
}
BENCHMARK(overlapped)->Unit(benchmark::kMillisecond);

// Links of 5 GB/s each, in whole numbers.
void whole_links(benchmark::State& state) {
  const DesignProblem problem = problem_of(Objective::time);
  for (auto _ : state) benchmark::DoNotOptimize(solve_discrete(problem, {5, 5, 5, 5}));
}
BENCHMARK(whole_links)->Unit(benchmark::kMillisecond);

// Chunks that take the dimensions in the orders that are best for them; any cable or one of two NICs missing.
void step_of(benchmark::State& state, const StepOptions& options, int nics) {
  const NetworkShape shape = parse_network("RI(4)_FC(8)_RI(4)_SW(32)");
  const Workload workload = make_workload("gpt3");
  for (auto _ : state) {
    DesignProblem problem = problem_of(Objective::time);
    problem.step = step_time(workload, place(workload.degrees, shape), shape, options);
    if (nics > 0) problem.step = with_any_failure(problem.step, shape, nics);
    benchmark::DoNotOptimize(solve(problem));
  }
}
BENCHMARK_CAPTURE(step_of, mixed_orders, StepOptions{.order = ChunkOrder::mixed}, 0)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(step_of, any_failure, StepOptions{}, 2)->Unit(benchmark::kMillisecond);

void pareto(benchmark::State& state) {
  const DesignProblem problem = problem_of(Objective::time);
  for (auto _ : state) benchmark::DoNotOptimize(pareto_front(problem, 40));
}
BENCHMARK(pareto)->Unit(benchmark::kMillisecond);

// A thousand shapes of one budget.
void shapes_of_a_thousand(benchmark::State& state) {
  const Workload workload = make_workload("resnet50");
  const auto all = shapes({.npus = 4096, .fewest_dimensions = 2, .most_dimensions = 4});
  for (auto _ : state) {
    double best = 0;
    for (std::size_t i = 0; i < 1000; ++i) {
      const NetworkShape& shape = all[i * all.size() / 1000];
      DesignProblem problem{.step = step_time(workload, place(workload.degrees, shape), shape)};
      for (const double cost : unit_costs(shape)) problem.dollars_per_gbps.push_back(4096 * cost);
      problem.constraints = {{.text = "budget",
                              .coefficients = std::vector<double>(shape.dimensions.size(), 1),
                              .relation = Relation::equal,
                              .limit = 500}};
      const double time = solve(problem).time_ns;
      best = best == 0 ? time : std::min(best, time);
    }
    benchmark::DoNotOptimize(best);
  }
}
BENCHMARK(shapes_of_a_thousand)->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
}  // namespace ranvier
