// Claim: adding two vectors runs at the speed of memory, and a vector of a few elements costs a few nanoseconds.
// Beside it, in the same run: the loop that one would write without this library, and memcpy.
// Bytes per second count what is read and written: three vectors for a reduction, two for memcpy.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "ranvier/kernel.h"

namespace ranvier {
namespace {

constexpr int vectors_touched = 3;

struct Operands {
  explicit Operands(std::size_t bytes) : to(bytes), from(bytes) {}
  std::vector<std::byte> to, from;
};

void count_bytes(benchmark::State& state, int vectors) {
  state.SetBytesProcessed(state.iterations() * state.range(0) * vectors);
}

// In place, as the engine does it: to = to op from.
void reduce(benchmark::State& state, ReduceOp op, DType type) {
  Operands operands(static_cast<std::size_t>(state.range(0)));
  const std::size_t count = operands.to.size() / size_of(type);
  const auto function = kernel::reduce_function(op, type);
  for (auto _ : state) {
    function(operands.to.data(), operands.to.data(), operands.from.data(), count, 4);
    benchmark::ClobberMemory();
  }
  count_bytes(state, vectors_touched);
}

[[gnu::noinline]] void plain_loop(float* to, const float* a, const float* b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = a[i] + b[i];
}

void plain_f32_sum(benchmark::State& state) {
  const std::size_t count = static_cast<std::size_t>(state.range(0)) / sizeof(float);
  std::vector<float> to(count), from(count);
  for (auto _ : state) {
    plain_loop(to.data(), to.data(), from.data(), count);
    benchmark::ClobberMemory();
  }
  count_bytes(state, vectors_touched);
}

void copy(benchmark::State& state) {
  Operands operands(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    std::memcpy(operands.to.data(), operands.from.data(), operands.to.size());
    benchmark::ClobberMemory();
  }
  count_bytes(state, 2);
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  for (const int bytes : {4, 16, 64, 1 << 10, 16 << 10, 128 << 10, 4 << 20, 64 << 20}) benchmark->Arg(bytes);
}

BENCHMARK_CAPTURE(reduce, f32_sum, ReduceOp::sum, DType::f32)->Apply(sizes);
BENCHMARK(plain_f32_sum)->Apply(sizes);
BENCHMARK(copy)->Apply(sizes);
BENCHMARK_CAPTURE(reduce, f32_average, ReduceOp::average, DType::f32)->Apply(sizes);
BENCHMARK_CAPTURE(reduce, f32_max, ReduceOp::max, DType::f32)->Apply(sizes);
BENCHMARK_CAPTURE(reduce, bf16_sum, ReduceOp::sum, DType::bf16)->Apply(sizes);
BENCHMARK_CAPTURE(reduce, f16_sum, ReduceOp::sum, DType::f16)->Apply(sizes);
BENCHMARK_CAPTURE(reduce, i32_average, ReduceOp::average, DType::i32)->Apply(sizes);

}  // namespace
}  // namespace ranvier
