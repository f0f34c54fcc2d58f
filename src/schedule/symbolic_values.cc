#include "schedule/symbolic_values.h"

#include <algorithm>

namespace ranvier::schedule_detail {
namespace {

// The finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

std::uint64_t Values::members_of(Contribution contribution) {
  return mix(std::uint64_t{static_cast<std::uint32_t>(contribution.first)} << 32 | contribution.second);
}

Values::Id Values::contribution(Rank rank, std::uint32_t element) {
  const Contribution self{rank, element};
  values_.push_back({members_of(self), members_of(self), 1, false, self, nothing, nothing});
  return static_cast<Id>(values_.size() - 1);
}

Values::Id Values::reduce(Id left, Id right, bool completes) {
  const Value a = values_[left];
  const Value b = values_[right];
  const std::uint64_t bits = mix(mix(a.bits) + mix(b.bits)) + (completes ? 1 : 0);
  values_.push_back({a.members + b.members, bits, a.count + b.count, completes, a.first, left, right});
  return static_cast<Id>(values_.size() - 1);
}

std::vector<Values::Contribution> Values::contributions(Id id) const {
  std::vector<Contribution> found;
  std::vector<Id> open{id};
  while (!open.empty()) {
    const Value& value = values_[open.back()];
    open.pop_back();
    if (value.count == 1) found.push_back(value.first);
    if (value.count > 1) open.insert(open.end(), {value.left, value.right});
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace ranvier::schedule_detail
