#include "exchange/collective_averaging.h"

#include <utility>

namespace ranvier {

void CollectiveAveraging::watch(std::vector<Work> works) {
  works_ = std::move(works);
  left_ = works_.size() + 1;
  // Callbacks keep this alive until the last of them, whatever becomes of the handle.
  const auto one_less = [self = shared_from_this()] {
    if (self->left_.fetch_sub(1) == 1) self->complete();
  };
  for (Work& work : works_) work.on_done(one_less);
  one_less();
}

void CollectiveAveraging::complete() {
  std::exception_ptr problem;
  std::shared_ptr<Phased> rest;
  for (const Work& work : works_)
    if (auto error = work.error(); error && !problem) problem = error;
  try {
    if (!problem) rest = take();
  } catch (...) {
    problem = std::current_exception();
  }
  if (!rest) return finish(problem);
  {
    const std::lock_guard lock(mutex_);
    rest_ = rest;
  }
  changed_.notify_all();
  rest->start([self = shared_from_this(), raw = rest.get()] { self->finish(raw->error()); });
}

void CollectiveAveraging::finish(std::exception_ptr problem) {
  std::vector<std::function<void()>> callbacks;
  {
    const std::lock_guard lock(mutex_);
    problem_ = std::move(problem);
    done_ = true;
    callbacks.swap(callbacks_);
  }
  changed_.notify_all();
  for (const auto& callback : callbacks) callback();
}

void CollectiveAveraging::wait() {
  for (Work& work : works_) {
    try {
      work.wait();
    } catch (...) {  // complete() finds it
      break;
    }
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ || rest_; });
  if (const auto rest = rest_; rest && !done_) {
    lock.unlock();
    try {
      rest->wait();
    } catch (...) {  // finish() gets it
    }
    lock.lock();
    changed_.wait(lock, [&] { return done_; });
  }
  if (problem_) std::rethrow_exception(problem_);
}

bool CollectiveAveraging::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}
std::exception_ptr CollectiveAveraging::error() const {
  const std::lock_guard lock(mutex_);
  return problem_;
}
void CollectiveAveraging::on_done(std::function<void()> then) {
  {
    const std::lock_guard lock(mutex_);
    if (!done_) return callbacks_.push_back(std::move(then));
  }
  then();
}

}  // namespace ranvier
