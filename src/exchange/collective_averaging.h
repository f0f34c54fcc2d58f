// An average that begins with collectives: once all of them are done it is taken from their results, or, where a rank
// had nothing to give, made by what goes as messages. (Collectives have one order on all ranks, and completions have
// not.)
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "exchange/staged_averaging.h"

namespace ranvier {

class CollectiveAveraging : public StagedAveraging {
 public:
  void wait() override;

 protected:
  // The last thing of a start.
  void watch(std::vector<Work> works);
  // Once, when all works are done without failure, by the thread that finishes the last of them. Returns what still has
  // to travel; null: the bucket holds the average.
  virtual std::shared_ptr<Phased> take() = 0;

 private:
  void complete();

  std::vector<Work> works_;
  std::atomic<std::size_t> left_ = 0;
};

}  // namespace ranvier
