// Which ranges of the parameters each server owns, and copies between those and one behind the other.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "ranvier/codec.h"
#include "ranvier/types.h"

namespace ranvier::replica {

class OwnedRanges {
 public:
  // `count` parameters in so many equal ranges (0: one for each owner), dealt out to `owners` of `world` in turn.
  OwnedRanges(std::size_t count, Rank world, const std::vector<Rank>& owners, std::size_t ranges);

  std::size_t size_of(Rank rank) const;
  // What `rank` owns of all, where it lies; none if those are several ranges.
  template <class Value>
  std::optional<std::span<Value>> in_place(std::span<Value> all, Rank rank) const {
    const auto& ranges = of(rank);
    if (ranges.empty() || all.empty()) return all.first(0);
    if (ranges.size() > 1) return std::nullopt;
    return all.subspan(ranges.front().first, ranges.front().size);
  }
  // From everywhere to one behind the other, size_of(rank) values, and back.
  void collect(std::span<const float> all, Rank rank, std::byte* into) const;
  void spread(std::span<const float> part, Rank rank, std::span<float> all) const;
  // Calls `use` with what `rank` owns of all, one behind the other, and puts what it makes of it back.
  template <class Use>
  void change(std::span<float> all, Rank rank, const Use& use) const {
    if (const auto part = in_place(all, rank)) return use(*part);
    std::vector<float> part(size_of(rank));
    collect(all, rank, std::as_writable_bytes(std::span(part)).data());
    use(std::span(part));
    spread(part, rank, all);
  }
  // Of what `rank` owns, of all that these pieces are.
  std::vector<TensorPiece> pieces(std::span<const TensorPiece> all, Rank rank) const;

 private:
  struct Range {
    std::size_t first;
    std::size_t size;
  };
  const std::vector<Range>& of(Rank rank) const { return by_rank_[static_cast<std::size_t>(rank)]; }

  std::vector<std::vector<Range>> by_rank_;  // those that are not empty
};

}  // namespace ranvier::replica
