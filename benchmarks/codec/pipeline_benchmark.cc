// Claims, on one core and 64 MiB of f32, as shares of the speed of a memcpy of the same 64 MiB: bf16 and fp16 80 %,
// block integers 60 % (stochastic 25 %), one bit 50 %, Hadamard + int4 30 %, top-k of 1 % 25 %; error feedback costs at
// most one more pass over memory. Peers in the same run: memcpy, zstd on the same values, std::nth_element for the
// selection.
//
// Bytes per second count the f32 side alone, as the claims do. The machine flips between speeds: run it with
//   --benchmark_enable_random_interleaving=true --benchmark_repetitions=15 --benchmark_report_aggregates_only=true
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "ranvier/codec.h"
#include "ranvier/coding.h"

namespace ranvier {
namespace {

constexpr std::size_t values_in_64_mib = std::size_t{16} << 20;

// Normal values, the same for all: made once.
const std::vector<float>& gradients() {
  static const std::vector<float> values = [] {
    std::vector<float> made(values_in_64_mib);
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 0.01F);
    std::vector<float> some(std::size_t{1} << 20);
    for (float& value : some) value = normal(random);
    for (std::size_t at = 0; at < made.size(); at += some.size()) std::ranges::copy(some, made.begin() + at);
    return made;
  }();
  return values;
}

void count_bytes(benchmark::State& state) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * values_in_64_mib * sizeof(float)));
}

void copy(benchmark::State& state) {
  std::vector<float> to(values_in_64_mib);
  for (auto _ : state) {
    std::memcpy(to.data(), gradients().data(), values_in_64_mib * sizeof(float));
    benchmark::ClobberMemory();
  }
  count_bytes(state);
}

void encode(benchmark::State& state, const std::string& spec, bool feedback) {
  const auto codec = make_codec(spec);
  std::vector<std::byte> code(codec->max_bytes(values_in_64_mib));
  std::vector<float> residual(feedback ? values_in_64_mib : 0);
  CodecKey key;
  for (auto _ : state) {
    benchmark::DoNotOptimize(codec->encode(gradients(), {.residual = residual}, code, key));
    ++key.seed;
  }
  count_bytes(state);
}

void decode(benchmark::State& state, const std::string& spec) {
  const auto codec = make_codec(spec);
  std::vector<std::byte> code(codec->max_bytes(values_in_64_mib));
  code.resize(codec->encode(gradients(), {}, code, {}));
  std::vector<float> to(values_in_64_mib);
  for (auto _ : state) {
    codec->decode(code, to);
    benchmark::ClobberMemory();
  }
  count_bytes(state);
}

void zstd_of_values(benchmark::State& state) {
  const auto coder = zstd();
  const auto bytes = std::as_bytes(std::span(gradients()));
  const std::span symbols(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  std::vector<std::byte> code(coder->max_bytes(symbols.size()));
  for (auto _ : state) benchmark::DoNotOptimize(coder->encode(symbols, code));
  count_bytes(state);
}

void nth_element_of_one_percent(benchmark::State& state) {
  std::vector<float> magnitudes(values_in_64_mib);
  for (auto _ : state) {
    std::ranges::transform(gradients(), magnitudes.begin(), [](float value) { return std::fabs(value); });
    std::nth_element(magnitudes.begin(), magnitudes.begin() + values_in_64_mib / 100, magnitudes.end(),
                     std::greater<>());
    benchmark::ClobberMemory();
  }
  count_bytes(state);
}

void register_all() {
  const auto add = [](const std::string& name, auto body) {
    benchmark::RegisterBenchmark(name.c_str(), body)->Unit(benchmark::kMillisecond)->UseRealTime();
  };
  add("memcpy", copy);
  for (const std::string spec : {"bf16",
                                 "fp16",
                                 "fp8",
                                 "mx",
                                 "natural",
                                 "int8",
                                 "int8:rounding=stochastic",
                                 "int4",
                                 "int2",
                                 "hadamard:32+int4",
                                 "qsgd:7",
                                 "qsgd:7+rans",
                                 "qsgd:7+huffman",
                                 "terngrad",
                                 "sign",
                                 "eden:1",
                                 "eden:2",
                                 "topk:0.01",
                                 "topk:0.01,select=sampled",
                                 "sidco:0.01",
                                 "dgc:0.001",
                                 "lossless"}) {
    add("encode/" + spec, [spec](benchmark::State& state) { encode(state, spec, false); });
    add("decode/" + spec, [spec](benchmark::State& state) { decode(state, spec); });
  }
  for (const std::string spec : {"int8", "int4", "hadamard:32+int4", "sign", "eden:1", "topk:0.01"})
    add("encode_with_feedback/" + spec, [spec](benchmark::State& state) { encode(state, spec, true); });
  add("zstd", zstd_of_values);
  add("nth_element", nth_element_of_one_percent);
}

}  // namespace
}  // namespace ranvier

int main(int argc, char** argv) {
  ranvier::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
