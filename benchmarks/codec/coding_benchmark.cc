// Claims: rANS decodes at 1 GB/s of symbols or more and encodes at 0.6, Huffman both at 0.5, on one core; beside them,
// in the same run, the arithmetic coder, zstd and memcpy. 64 MiB of symbols drawn without memory, so that nobody finds
// repeats, as a quantizer makes them from values that are normal: a deviation of 0.3, 1.5 and 25 levels gives 0.6, 2.7
// and 6.7 bits of entropy, about as QSGD with the L2 norm, int4 behind a Hadamard transform and int8. Bytes per second
// count symbols, or bytes of floats; `bits` is the length of the code a symbol or value, `entropy` what it might be.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "codec/histogram.h"
#include "ranvier/coding.h"
#include "ranvier/kernel.h"

namespace ranvier {
namespace {

constexpr std::size_t bytes = std::size_t{64} << 20;

// Draws from a table of 64 Ki: fast, and finer than what is measured.
template <class Value, class Make>
std::vector<Value> drawn(std::size_t count, double deviation, Make make) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal(0, deviation);
  std::vector<Value> table(1 << 16);
  for (Value& value : table) value = make(normal(random));
  std::vector<Value> values(count);
  for (Value& value : values) value = table[random() >> 16];
  return values;
}

std::vector<std::uint8_t> symbols(const benchmark::State& state) {
  const double deviation = static_cast<double>(state.range(0)) / 10;
  return drawn<std::uint8_t>(bytes, deviation, [](double value) {
    return static_cast<std::uint8_t>(std::clamp(std::round(value), -127.0, 127.0) + 127);
  });
}

void finish(benchmark::State& state, std::size_t code_bytes, std::size_t count) {
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
  state.counters["bits"] = 8.0 * static_cast<double>(code_bytes) / static_cast<double>(count);
}

void finish(benchmark::State& state, std::size_t code_bytes, const std::vector<std::uint8_t>& values) {
  finish(state, code_bytes, values.size());
  state.counters["entropy"] = entropy_bits(histogram_of(values)) / static_cast<double>(values.size());
}

void encode(benchmark::State& state, std::unique_ptr<Coder> (*make)()) {
  const auto coder = make();
  const auto values = symbols(state);
  std::vector<std::byte> code(coder->max_bytes(bytes));
  std::size_t length = 0;
  for (auto _ : state) {
    length = coder->encode(values, code);
    benchmark::ClobberMemory();
  }
  finish(state, length, values);
}

void decode(benchmark::State& state, std::unique_ptr<Coder> (*make)()) {
  const auto coder = make();
  auto values = symbols(state);
  std::vector<std::byte> code(coder->max_bytes(bytes));
  code.resize(coder->encode(values, code));
  for (auto _ : state) {
    coder->decode(code, values);
    benchmark::ClobberMemory();
  }
  finish(state, code.size(), values);
}

void copy(benchmark::State& state) {
  const std::vector<std::byte> from(bytes, std::byte{1});
  std::vector<std::byte> to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
}

// Normal floats; of the second kind half are zero, as behind a ReLU.
std::vector<std::byte> floats(DType type, bool half_zeros) {
  const std::size_t count = bytes / size_of(type);
  std::mt19937 random(2);
  auto values = drawn<float>(count, 1e-3, [](double value) { return static_cast<float>(value); });
  // As the table has few values, their low bits come from elsewhere.
  for (float& value : values)
    value = half_zeros && random() % 2 ? 0 : value * (1 + static_cast<float>(random()) * 0x1p-36F);
  std::vector<std::byte> raw(bytes);
  if (type == DType::f32)
    std::memcpy(raw.data(), values.data(), bytes);
  else
    kernel::to_bf16(values.data(), raw.data(), count);
  return raw;
}

void encode_floats(benchmark::State& state, DType type, bool half_zeros) {
  const auto values = floats(type, half_zeros);
  const std::size_t count = bytes / size_of(type);
  std::vector<std::byte> code(max_lossless_bytes(count, type));
  std::size_t length = 0;
  for (auto _ : state) {
    length = encode_lossless({values.data(), count, type}, code);
    benchmark::ClobberMemory();
  }
  finish(state, length, count);
}

void decode_floats(benchmark::State& state, DType type, bool half_zeros) {
  auto values = floats(type, half_zeros);
  const std::size_t count = bytes / size_of(type);
  std::vector<std::byte> code(max_lossless_bytes(count, type));
  code.resize(encode_lossless({values.data(), count, type}, code));
  for (auto _ : state) {
    decode_lossless(code, {values.data(), count, type});
    benchmark::ClobberMemory();
  }
  finish(state, code.size(), count);
}

void deviations(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("tenths")->Arg(3)->Arg(15)->Arg(250)->Unit(benchmark::kMillisecond);
}

BENCHMARK(copy)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, rans, rans)->Apply(deviations);
BENCHMARK_CAPTURE(decode, rans, rans)->Apply(deviations);
BENCHMARK_CAPTURE(encode, huffman, huffman)->Apply(deviations);
BENCHMARK_CAPTURE(decode, huffman, huffman)->Apply(deviations);
BENCHMARK_CAPTURE(encode, range, range_coder)->Apply(deviations);
BENCHMARK_CAPTURE(decode, range, range_coder)->Apply(deviations);
BENCHMARK_CAPTURE(encode, zstd, zstd)->Apply(deviations);
BENCHMARK_CAPTURE(decode, zstd, zstd)->Apply(deviations);
BENCHMARK_CAPTURE(encode_floats, f32, DType::f32, false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(decode_floats, f32, DType::f32, false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_floats, f32_half_zeros, DType::f32, true)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(decode_floats, f32_half_zeros, DType::f32, true)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_floats, bf16, DType::bf16, false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(decode_floats, bf16, DType::bf16, false)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ranvier
