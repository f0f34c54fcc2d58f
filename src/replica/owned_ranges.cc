#include "replica/owned_ranges.h"

#include <algorithm>
#include <cstring>

namespace ranvier::replica {

OwnedRanges::OwnedRanges(std::size_t count, Rank world, const std::vector<Rank>& owners, std::size_t ranges)
    : by_rank_(static_cast<std::size_t>(world)) {
  if (ranges == 0) ranges = owners.size();
  for (std::size_t i = 0; i < ranges; ++i) {
    const std::size_t first = count * i / ranges, behind = count * (i + 1) / ranges;
    if (behind > first)
      by_rank_[static_cast<std::size_t>(owners[i % owners.size()])].push_back({first, behind - first});
  }
}

std::size_t OwnedRanges::size_of(Rank rank) const {
  std::size_t size = 0;
  for (const Range& each : of(rank)) size += each.size;
  return size;
}

void OwnedRanges::collect(std::span<const float> all, Rank rank, std::byte* into) const {
  for (const auto [first, size] : of(rank)) {
    std::memcpy(into, all.data() + first, size * sizeof(float));
    into += size * sizeof(float);
  }
}

void OwnedRanges::spread(std::span<const float> part, Rank rank, std::span<float> all) const {
  for (const auto [first, size] : of(rank)) {
    std::ranges::copy(part.first(size), all.begin() + static_cast<std::ptrdiff_t>(first));
    part = part.subspan(size);
  }
}

std::vector<TensorPiece> OwnedRanges::pieces(std::span<const TensorPiece> all, Rank rank) const {
  std::vector<TensorPiece> own;
  for (const auto [first, size] : of(rank)) {
    const auto cut_out = cut(all, first, size);
    own.insert(own.end(), cut_out.begin(), cut_out.end());
  }
  return own;
}

}  // namespace ranvier::replica
