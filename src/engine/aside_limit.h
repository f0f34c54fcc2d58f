// How much a rank keeps of messages that came before their receives: half of the memory that the host or the container
// has left. Most systems promise more memory than they have, and end the process that uses it.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <utility>

#include "base/system_files.h"

namespace ranvier::engine {

class AsideLimit {
 public:
  static constexpr std::size_t step = std::size_t{1} << 30;  // up to this, and between its multiples, nobody is asked

  // Where nothing is known, all there can be.
  AsideLimit()
      : AsideLimit([] { return available_memory_bytes().value_or(std::numeric_limits<std::size_t>::max()); }) {}
  explicit AsideLimit(std::function<std::size_t()> available) : available_(std::move(available)) {}

  // Whether there is room for so many bytes more; they are counted if there is.
  bool take(std::size_t bytes) {
    if (bytes > ~kept_) return false;
    const std::size_t total = kept_ + bytes;
    if (total > step) {
      if (total / step != asked_at_) most_ = available_() / 2;
      asked_at_ = total / step;
      if (total > most_) return false;
    }
    kept_ = total;
    return true;
  }

  void give_back(std::size_t bytes) { kept_ -= bytes; }

 private:
  std::function<std::size_t()> available_;
  std::size_t kept_ = 0;
  std::size_t asked_at_ = 0;  // how many steps were kept then
  std::size_t most_ = 0;
};

}  // namespace ranvier::engine
