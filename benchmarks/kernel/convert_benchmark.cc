// Claim: converting to and from 16-bit floats runs at the speed of memory, so a 16-bit wire costs no more than a copy.
// Beside it, in the same run: memcpy of the f32 side. The argument is the bytes of the f32 side; bytes per second count
// what is read and written.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ranvier/kernel.h"

namespace ranvier {
namespace {

struct Buffers {
  explicit Buffers(const benchmark::State& state)
      : floats(static_cast<std::size_t>(state.range(0)) / sizeof(float)), halves(floats.size()) {}
  std::vector<float> floats;
  std::vector<std::uint16_t> halves;
};

void count_bytes(benchmark::State& state) { state.SetBytesProcessed(state.iterations() * state.range(0) * 3 / 2); }

void narrow(benchmark::State& state, void (*convert)(const float*, void*, std::size_t)) {
  Buffers buffers(state);
  for (auto _ : state) {
    convert(buffers.floats.data(), buffers.halves.data(), buffers.floats.size());
    benchmark::ClobberMemory();
  }
  count_bytes(state);
}

void widen(benchmark::State& state, void (*convert)(const void*, float*, std::size_t)) {
  Buffers buffers(state);
  for (auto _ : state) {
    convert(buffers.halves.data(), buffers.floats.data(), buffers.floats.size());
    benchmark::ClobberMemory();
  }
  count_bytes(state);
}

void copy_f32(benchmark::State& state) {
  const Buffers from(state);
  std::vector<float> to(from.floats.size());
  for (auto _ : state) {
    std::memcpy(to.data(), from.floats.data(), static_cast<std::size_t>(state.range(0)));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * 2);
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  for (const int bytes : {64, 16 << 10, 128 << 10, 4 << 20, 64 << 20}) benchmark->Arg(bytes);
}

BENCHMARK_CAPTURE(narrow, bf16, kernel::to_bf16)->Apply(sizes);
BENCHMARK_CAPTURE(widen, bf16, kernel::from_bf16)->Apply(sizes);
BENCHMARK_CAPTURE(narrow, f16, kernel::to_f16)->Apply(sizes);
BENCHMARK_CAPTURE(widen, f16, kernel::from_f16)->Apply(sizes);
BENCHMARK(copy_f32)->Apply(sizes);

}  // namespace
}  // namespace ranvier
