#include "transport/bulk_copy.h"

#include <algorithm>
#include <cstring>

#include "base/ticks.h"

namespace ranvier::transport {
namespace {

constexpr std::size_t least_worth_a_choice = 4096;
constexpr double smoothing = 0.25;
constexpr double readers_share = 2;

}  // namespace

void CopyChooser::took(Way way, std::uint64_t ticks, std::size_t bytes) {
  const double sample = static_cast<double>(ticks) / static_cast<double>(bytes);
  double& known = ticks_per_byte_[way];
  // One piece during which the thread lost its core says little: no sample counts for more than twice what is known.
  known = known == 0 ? sample : known + smoothing * (std::min(sample, 2 * known) - known);
  if (ticks_per_byte_[streaming] == 0) return;
  best_ = readers_share * ticks_per_byte_[streaming] < ticks_per_byte_[cached] ? streaming : cached;
}

void BulkCopier::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes < least_worth_a_choice) {
    std::memcpy(to, from, bytes);
    return;
  }
  const auto way = chooser_.next();
  const std::uint64_t start = ticks();
  if (way == CopyChooser::streaming)
    streaming_copy(to, from, bytes);
  else
    std::memcpy(to, from, bytes);
  chooser_.took(way, ticks() - start, bytes);
}

}  // namespace ranvier::transport
