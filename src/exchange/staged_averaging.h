// An average that is made in stages, each of which travels: what has to be told to whoever waits for it, or asks to be
// called.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "exchange/phased.h"
#include "ranvier/exchange.h"

namespace ranvier {

class StagedAveraging : public Averaging, public std::enable_shared_from_this<StagedAveraging> {
 public:
  void wait() override;
  bool done() const final;
  std::exception_ptr error() const final;
  void on_done(std::function<void()> then) final;

 protected:
  // Begins the next stage: whoever waits drives it. `then` is called once, by the thread that finishes it, with what it
  // failed with, and goes on or ends this.
  void go_on_with(const std::shared_ptr<Phased>& stage, std::function<void(std::exception_ptr)> then);
  // A stage of another kind has begun, by `wait` whoever waits drives it.
  void drive(std::function<void()> wait);
  // The bucket holds the average, or there is none for this reason. The first time counts.
  void finish(std::exception_ptr problem);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> drive_;  // the last stage that was begun
  std::uint64_t stages_ = 0;     // that were
  bool done_ = false;
  std::exception_ptr problem_;
  std::vector<std::function<void()>> callbacks_;
};

}  // namespace ranvier
