// An average behind which something is still to be done with the bucket, once, before anybody takes it for done.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "ranvier/exchange.h"

namespace ranvier {

class FollowedAveraging : public Averaging, public std::enable_shared_from_this<FollowedAveraging> {
 public:
  void begin(std::shared_ptr<Averaging> inner) {
    inner_ = std::move(inner);
    inner_->on_done([self = shared_from_this()] { self->end(); });
  }
  void wait() final {
    inner_->wait();
    end();
  }
  bool done() const final { return ended_.load(std::memory_order_acquire); }
  std::exception_ptr error() const final { return done() ? inner_->error() : nullptr; }
  void on_done(std::function<void()> then) final {
    inner_->on_done([self = shared_from_this(), then = std::move(then)] {
      self->end();
      then();
    });
  }
  bool went_plain(std::size_t value) const final { return inner_->went_plain(value); }

 protected:
  // By one thread; not where the average has failed.
  virtual void follow() = 0;

 private:
  // Once, by whoever comes first; others wait for it.
  void end() {
    const std::lock_guard lock(mutex_);
    if (done()) return;
    if (!inner_->error()) follow();
    ended_.store(true, std::memory_order_release);
  }

  std::shared_ptr<Averaging> inner_;
  std::mutex mutex_;
  std::atomic<bool> ended_ = false;
};

}  // namespace ranvier
