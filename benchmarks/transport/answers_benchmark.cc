// What it saves that sums go back in the memory of the message that they were made of (docs/decisions/0020):
// all_reduces of two ranks, threads over loopback's rings, with that and without.
//   answers_benchmark --benchmark_repetitions=7 --benchmark_enable_random_interleaving=true
#include <benchmark/benchmark.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/transport.h"
#include "support/transport_over.h"

namespace ranvier {
namespace {

void all_reduce(benchmark::State& state, bool answers) {
  auto world = loopback_world(2);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (auto& transport : world) {
    if (!answers) transport = std::make_unique<support::TransportOver>(std::move(transport));  // which has none
    ranks.push_back(Communicator::over(std::move(transport), {.algorithm = "ring"}));
  }
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<float> mine(bytes / sizeof(float)), others(mine.size());
  std::jthread other([&] {  // until the sum says that it is enough
    while (others[0] == 0) ranks[1]->all_reduce(others);
  });
  for (auto _ : state) ranks[0]->all_reduce(mine);
  mine[0] = 1;
  ranks[0]->all_reduce(mine);
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * state.iterations());
}

BENCHMARK_CAPTURE(all_reduce, with_answers, true)->RangeMultiplier(4)->Range(64 << 10, 16 << 20)->UseRealTime();
BENCHMARK_CAPTURE(all_reduce, without, false)->RangeMultiplier(4)->Range(64 << 10, 16 << 20)->UseRealTime();

}  // namespace
}  // namespace ranvier
