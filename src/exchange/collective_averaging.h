// An average that begins with collectives: once all of them are done it is taken from their results, or, where a rank
// had nothing to give, made by what goes as messages. (Collectives have one order on all ranks, and completions have
// not.)
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "exchange/phased.h"
#include "ranvier/exchange.h"

namespace ranvier {

class CollectiveAveraging : public Averaging, public std::enable_shared_from_this<CollectiveAveraging> {
 public:
  void wait() override;
  bool done() const override;
  std::exception_ptr error() const override;
  void on_done(std::function<void()> then) override;

 protected:
  // The last thing of a start.
  void watch(std::vector<Work> works);
  // Once, when all works are done without failure, by the thread that finishes the last of them. Returns what still has
  // to travel; null: the bucket holds the average.
  virtual std::shared_ptr<Phased> take() = 0;

 private:
  void complete();
  void finish(std::exception_ptr problem);

  std::vector<Work> works_;
  std::atomic<std::size_t> left_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<Phased> rest_;
  bool done_ = false;
  std::exception_ptr problem_;
  std::vector<std::function<void()>> callbacks_;
};

}  // namespace ranvier
