// What an operation pays so that auto learns: its place among those of its shape, before and after all is learned, and
// while operations are timed. The operation itself is left out.
#include <benchmark/benchmark.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>

#include "engine/learning.h"
#include "engine/link_probe.h"

namespace ranvier::engine {
namespace {

using std::chrono::steady_clock;

LearningSettings settings_of_a_pretence() {
  return {.selection = std::make_shared<Selection>(SelectionSettings{
              .world = 4, .transport = "tcp", .links = nominal_links("tcp", false), .slice_bytes = 128 << 10}),
          .check = [](const Request& request) { benchmark::DoNotOptimize(&request); },
          .run = [](const Request& request) { benchmark::DoNotOptimize(&request); },
          .clock = [] { return std::chrono::duration<double>(steady_clock::now().time_since_epoch()).count(); }};
}

void bare_operation(benchmark::State& state) {
  const LearningSettings settings = settings_of_a_pretence();
  std::array<float, 16> data{};
  for (auto _ : state) settings.run({.input = data, .output = data});
}
BENCHMARK(bare_operation);

void operation_of_which_all_is_learned(benchmark::State& state) {
  Learning learning(settings_of_a_pretence());
  std::array<float, 16> data{};
  for (int i = 0; i < 1000; ++i) learning.run({.input = data, .output = data});
  for (auto _ : state) learning.run({.input = data, .output = data});
}
BENCHMARK(operation_of_which_all_is_learned);

// The first ones, of which the last third is timed; the rate is that of operations.
void operations_before_ranks_agree(benchmark::State& state) {
  constexpr int operations = 49;
  std::array<float, 16> data{};
  std::optional<Learning> learning;
  for (auto _ : state) {
    state.PauseTiming();
    learning.emplace(settings_of_a_pretence());
    state.ResumeTiming();
    for (int i = 0; i < operations; ++i) learning->run({.input = data, .output = data});
  }
  state.SetItemsProcessed(state.iterations() * operations);
}
BENCHMARK(operations_before_ranks_agree);

}  // namespace
}  // namespace ranvier::engine
