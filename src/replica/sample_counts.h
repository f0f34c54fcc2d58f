// How many samples each rank has used since an average was last made: what each weighs in the next one, however its
// batches have changed meanwhile.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/parts.h"

namespace ranvier::replica {

class SampleCounts {
 public:
  // Of so many different averages, each of which is made at times of its own.
  SampleCounts(std::size_t ranks, std::size_t averages)
      : used_(ranks, 0), before_(averages, used_), begun_(averages, used_) {}

  void add(std::span<const double> by_rank) {
    for (std::size_t rank = 0; rank < used_.size(); ++rank) used_[rank] += by_rank[rank];
  }
  std::vector<double> since(std::size_t average) const {
    std::vector<double> counts = used_;
    for (std::size_t rank = 0; rank < counts.size(); ++rank) counts[rank] -= before_[average][rank];
    return counts;
  }
  void made(std::size_t average) { before_[average] = used_; }
  // One that is under way counts once it is taken up; until then, and where it never is, replicas are apart by all
  // that they have used since the one before it.
  void begun(std::size_t average) { begun_[average] = used_; }
  void taken_up(std::size_t average) { before_[average] = begun_[average]; }

  void save(std::vector<std::byte>& all) const {
    append_part(all, std::as_bytes(std::span(used_)));
    for (const auto* counts : {&before_, &begun_})
      for (const auto& each : *counts) append_part(all, std::as_bytes(std::span(each)));
  }
  void restore(ConstBytes& kept) {
    take_values(kept, std::span(used_));
    for (auto* counts : {&before_, &begun_})
      for (auto& each : *counts) take_values(kept, std::span(each));
  }

 private:
  std::vector<double> used_;  // since the beginning; whole numbers, which add up exactly
  std::vector<std::vector<double>> before_, begun_;
};

}  // namespace ranvier::replica
