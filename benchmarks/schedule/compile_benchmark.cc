// What it costs to make a program: the price of the first collective of each shape, since programs are cached by shape.
#include <benchmark/benchmark.h>

#include "ranvier/schedule.h"

namespace ranvier {
namespace {

// Arguments: world size, bytes.
void compile_program(benchmark::State& state, const char* algorithm) {
  const auto world = static_cast<Rank>(state.range(0));
  const auto count = static_cast<std::size_t>(state.range(1)) / sizeof(float);
  const Schedule schedule =
      find_algorithm(algorithm, Collective::all_reduce).build({.collective = Collective::all_reduce, .world = world});
  std::size_t instructions = 0;
  for (auto _ : state) {
    const Layout layout = even_layout(schedule, 1, count, sizeof(float));
    const Program program = compile(schedule, 1, layout, {.in_place = true});
    instructions = program.sends.size() + program.receives.size();
    benchmark::DoNotOptimize(program);
  }
  state.counters["instructions"] = static_cast<double>(instructions);
}

BENCHMARK_CAPTURE(compile_program, one_round, "one_round")->Args({2, 4})->Args({4, 4})->Args({2, 64 << 10});
BENCHMARK_CAPTURE(compile_program, direct, "direct")->Args({2, 4})->Args({8, 1 << 20})->Args({8, 64 << 20});
BENCHMARK_CAPTURE(compile_program, ring, "ring")
    ->Args({2, 4})
    ->Args({8, 1 << 20})
    ->Args({8, 64 << 20})
    ->Args({1024, 4});
BENCHMARK_CAPTURE(compile_program, halving_doubling, "halving_doubling")
    ->Args({8, 4})
    ->Args({8, 64 << 20})
    ->Args({1024, 4});

void verify_world(benchmark::State& state) {
  const Schedule schedule = ring(Collective::all_reduce, static_cast<Rank>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(verify(schedule));
}
BENCHMARK(verify_world)->Arg(8)->Arg(64)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ranvier
