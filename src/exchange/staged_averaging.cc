#include "exchange/staged_averaging.h"

#include <utility>

#include "engine/call_back.h"

namespace ranvier {

// The callback keeps this alive until then, whatever becomes of the handle.
void StagedAveraging::go_on_with(const std::shared_ptr<Phased>& stage, std::function<void(std::exception_ptr)> then) {
  drive([stage] { stage->wait(); });
  stage->start([self = shared_from_this(), raw = stage.get(), then = std::move(then)] { then(raw->error()); });
}

void StagedAveraging::drive(std::function<void()> wait) {
  {
    const std::lock_guard lock(mutex_);
    drive_ = std::move(wait);
    ++stages_;
  }
  changed_.notify_all();
}

void StagedAveraging::finish(std::exception_ptr problem) {
  std::vector<std::function<void()>> callbacks;
  {
    const std::lock_guard lock(mutex_);
    if (done_) return;
    problem_ = std::move(problem);
    done_ = true;
    callbacks.swap(callbacks_);
  }
  changed_.notify_all();
  for (const auto& callback : callbacks) engine::call_back(callback);
}

void StagedAveraging::wait() {
  std::unique_lock lock(mutex_);
  for (std::uint64_t seen = 0;;) {
    // Between two stages another thread computes.
    changed_.wait(lock, [&] { return done_ || stages_ != seen; });
    if (done_) break;
    seen = stages_;
    const auto driven = drive_;
    lock.unlock();
    try {
      driven();
    } catch (...) {  // what was to come then gets it
    }
    lock.lock();
  }
  if (problem_) std::rethrow_exception(problem_);
}

bool StagedAveraging::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

std::exception_ptr StagedAveraging::error() const {
  const std::lock_guard lock(mutex_);
  return problem_;
}

void StagedAveraging::on_done(std::function<void()> then) {
  {
    const std::lock_guard lock(mutex_);
    if (!done_) return callbacks_.push_back(std::move(then));
  }
  engine::call_back(then);
}

}  // namespace ranvier
