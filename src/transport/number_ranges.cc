#include "transport/number_ranges.h"

#include <algorithm>

namespace ranvier::transport {

bool NumberRanges::add(NumberRange added) {
  if (added.empty()) return false;
  // Those that overlap or touch the new one are [first, last).
  auto last = ranges_.end();
  while (last != ranges_.begin() && std::prev(last)->begin > added.end) --last;
  auto first = last;
  while (first != ranges_.begin() && std::prev(first)->end >= added.begin) --first;
  if (first == last) {
    ranges_.insert(first, added);
    return true;
  }
  if (first->begin <= added.begin && added.end <= first->end) return false;
  first->begin = std::min(first->begin, added.begin);
  first->end = std::max(std::prev(last)->end, added.end);
  ranges_.erase(first + 1, last);
  return true;
}

void NumberRanges::remove(NumberRange removed) {
  if (removed.empty()) return;
  auto each = std::ranges::find_if(ranges_, [&](const NumberRange& range) { return range.end > removed.begin; });
  if (each == ranges_.end()) return;
  if (each->begin < removed.begin && each->end > removed.end) {
    const NumberRange behind{removed.end, each->end};
    each->end = removed.begin;
    ranges_.insert(each + 1, behind);
    return;
  }
  if (each->begin < removed.begin) (each++)->end = removed.begin;
  const auto first_gone = each;
  while (each != ranges_.end() && each->end <= removed.end) ++each;
  if (each != ranges_.end()) each->begin = std::max(each->begin, removed.end);
  ranges_.erase(first_gone, each);
}

bool NumberRanges::contains(std::uint64_t number) const {
  return std::ranges::any_of(ranges_,
                             [&](const NumberRange& range) { return range.begin <= number && number < range.end; });
}

}  // namespace ranvier::transport
