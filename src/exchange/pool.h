// Memory for codes and sums, kept from step to step: the same buckets come round again.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

namespace ranvier {

template <class Element>
class Pool {
 public:
  std::vector<Element> take(std::size_t count) {
    const std::lock_guard lock(mutex_);
    std::vector<Element> memory;
    if (!free_.empty()) {
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
