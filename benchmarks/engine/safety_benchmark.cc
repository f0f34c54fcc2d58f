// What the smallest operation pays so that mistakes and failures are told: its place in the digest of calls, a header
// that is made for one peer and compared with that of another, and its lines in the flight recorder. Its deadline costs
// nothing as long as it ends within a few polls: no clock is read before.
#include <benchmark/benchmark.h>

#include "engine/call_history.h"
#include "engine/flight_recorder.h"
#include "engine/message_header.h"

namespace ranvier::engine {
namespace {

void safety_of_one_operation(benchmark::State& state) {
  CallHistory history(2);
  FlightRecorder recorder;
  MessageHeader ours{.collective = Collective::all_reduce, .dtype = DType::f32, .size = 1};
  const CallStamp stamp = CallStamp::of(ours);
  for (auto _ : state) {
    const auto [sequence, digest] = history.add(stamp);
    ours.sequence = sequence;
    ours.history = digest;
    const std::uint64_t place = recorder.start(
        {.sequence = sequence, .collective = ours.collective, .dtype = ours.dtype, .bytes = sizeof(float)});
    MessageHeader theirs = ours;
    benchmark::DoNotOptimize(&theirs);
    benchmark::ClobberMemory();  // as if it had come from elsewhere
    const bool alike = agree(theirs, ours);
    benchmark::DoNotOptimize(alike);
    recorder.end(place, !alike);
  }
}
BENCHMARK(safety_of_one_operation);

}  // namespace
}  // namespace ranvier::engine
