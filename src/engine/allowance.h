// How much of the averages a rank may go without before it has to wait for them after all: the bound on how far ranks
// drift apart between two realignments. A share of what has been due since the last one, or of what was due between the
// two before, whichever is more: so that one host that stalls early in a period does not hold up the others.
//
// Pure.
#pragma once

#include <algorithm>
#include <cstddef>

namespace ranvier::engine {

class Allowance {
 public:
  explicit Allowance(double share) : share_(share) {}

  void due(std::size_t pieces) { due_ += pieces; }
  // Whether a rank may go without so many more; then it does.
  bool take(std::size_t pieces) {
    if (static_cast<double>(taken_ + pieces) > share_ * static_cast<double>(std::max(due_, due_before_))) return false;
    taken_ += pieces;
    return true;
  }
  // The ranks are realigned.
  void renew() {
    due_before_ = due_;
    due_ = taken_ = 0;
  }

 private:
  const double share_;
  std::size_t due_ = 0, taken_ = 0;
  std::size_t due_before_ = 0;
};

}  // namespace ranvier::engine
