// Proof, cost and contention of a schedule, all in one.
#include "ranvier/topology.h"

namespace ranvier {
namespace {

constexpr Rank most_uneven_ranks = 128;

// The hard way, in place and out of place: chunks of several slices, of different sizes. Then, or instead, chunks of
// one element each, which make the cost exact.
Verdict prove(const Schedule& schedule) {
  const std::size_t one_each = moves_whole_vector(schedule.collective) ? schedule.chunks : 1;
  const std::size_t hard = schedule.world <= most_uneven_ranks ? 0 : one_each;  // 0 leaves the choice to verify
  for (const bool in_place : {true, false}) {
    if (in_place && schedule.collective == Collective::neighbor_exchange) continue;
    const std::size_t buffered = in_place && schedule.buffered_in_place ? 1 : 0;
    Verdict verdict = verify(
        schedule,
        {.count = hard, .slice_bytes = 2 * verified_element_bytes, .buffered_slices = buffered, .in_place = in_place});
    if (!verdict.ok || (!in_place && hard == one_each)) return verdict;
  }
  return verify(schedule, {.count = one_each});
}

}  // namespace

double Assessment::sent() const {
  if (verdict.vector_bytes == 0) return 0;
  return static_cast<double>(verdict.most_bytes_sent) / static_cast<double>(verdict.vector_bytes);
}

Assessment assess(const Schedule& schedule, std::span<const Topology> topologies) {
  Assessment result;
  for (const Topology& topology : topologies) result.contentions.push_back(contention(schedule, topology));
  result.verdict = prove(schedule);
  return result;
}

}  // namespace ranvier
