// Operations that were started, to be used again once nobody has a handle of them: starting one allocates nothing then,
// nor do the vectors that it keeps. A handle may outlive the pool.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/spin_lock.h"
#include "engine/collective.h"

namespace ranvier::engine {

class OperationPool {
 public:
  // To be reset by who takes it. Thread-safe.
  std::shared_ptr<CollectiveOperation> take() {
    {
      const std::lock_guard lock(lock_);
      for (std::size_t tries = 0; tries < kept_.size(); ++tries) {
        const std::shared_ptr<CollectiveOperation>& each = kept_[next_];
        next_ = (next_ + 1) % kept_.size();  // they mostly end in the order in which they were started
        if (each.use_count() > 1) continue;
        // The count alone orders nothing. To drop a handle does, after all that was done with those dropped before.
        std::shared_ptr(each).reset();
        return each;
      }
    }
    auto fresh = std::make_shared<CollectiveOperation>();
    const std::lock_guard lock(lock_);
    if (kept_.size() < most_kept) kept_.push_back(fresh);
    return fresh;
  }

  // Of more than are under way at a time the others are made and given back.
  static constexpr std::size_t most_kept = 64;

 private:
  SpinLock lock_;
  std::vector<std::shared_ptr<CollectiveOperation>> kept_;
  std::size_t next_ = 0;  // to look at
};

}  // namespace ranvier::engine
