// How long simulating takes: folded worlds of any size, and whole ones.
#include <benchmark/benchmark.h>

#include "ranvier/simulate.h"

namespace ranvier {
namespace {

// Arguments: world size, whether to fold.
void simulate_all_reduce(benchmark::State& state, const char* algorithm) {
  const auto world = static_cast<Rank>(state.range(0));
  const Schedule schedule =
      find_algorithm(algorithm, Collective::all_reduce).build({.collective = Collective::all_reduce, .world = world});
  const Topology star = topology::star(world);
  // Slices as large as the vector: what butterflies send at once then goes as one message, and they fold.
  const SimulateOptions options{.slice_bytes = std::size_t{1} << 30, .fold = state.range(1) != 0};
  double messages = 0;
  for (auto _ : state)
    messages = static_cast<double>(simulate(schedule, star, schedule.chunks * std::size_t{256}, 4, options).messages);
  state.counters["messages"] = messages;
}
BENCHMARK_CAPTURE(simulate_all_reduce, ring, "ring")
    ->Args({64, 0})
    ->Args({64, 1})
    ->Args({1024, 1})
    ->Args({131072, 1})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_all_reduce, halving_doubling, "halving_doubling")
    ->Args({64, 0})
    ->Args({64, 1})
    ->Args({131072, 1})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ranvier
