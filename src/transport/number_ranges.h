// A set of numbers kept as disjoint ranges: which packets have arrived, which bytes of a lane, which have to be sent
// again. Most additions are at the upper end and most sets hold a handful of ranges, so a sorted vector that is
// searched from its end is faster than any tree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ranvier::transport {

// begin … end-1.
struct NumberRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  std::uint64_t size() const { return end - begin; }
  bool empty() const { return begin >= end; }
  friend bool operator==(const NumberRange&, const NumberRange&) = default;
};

class NumberRanges {
 public:
  // Whether any of them is new.
  bool add(NumberRange);
  void remove(NumberRange);
  void remove_below(std::uint64_t number) { remove({0, number}); }
  bool contains(std::uint64_t number) const;

  bool empty() const { return ranges_.empty(); }
  std::size_t count() const { return ranges_.size(); }
  // Ascending, none empty, no two that touch.
  std::span<const NumberRange> all() const { return ranges_; }
  NumberRange first() const { return ranges_.front(); }
  void reserve(std::size_t ranges) { ranges_.reserve(ranges); }

 private:
  std::vector<NumberRange> ranges_;
};

}  // namespace ranvier::transport
