// Memory for codes and sums, kept from step to step: the same buckets come round again.
#pragma once

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace ranvier {

template <class Element>
class Pool {
 public:
  std::vector<Element> take(std::size_t count) {
    const std::lock_guard lock(mutex_);
    std::vector<Element> memory;
    if (!free_.empty()) {
      // One of the same size need not be filled with zeros as it grows.
      const auto same = std::ranges::find(free_, count, &std::vector<Element>::size);
      std::swap(same == free_.end() ? free_.back() : *same, free_.back());
      memory = std::move(free_.back());
      free_.pop_back();
    }
    memory.resize(count);
    return memory;
  }
  void give_back(std::vector<Element> memory) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(memory));
  }

 private:
  std::mutex mutex_;
  std::vector<std::vector<Element>> free_;
};

}  // namespace ranvier
