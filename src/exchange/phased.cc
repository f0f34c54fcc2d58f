#include "exchange/phased.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

namespace ranvier {

void Phased::start(std::function<void()> then) {
  {
    const std::lock_guard lock(mutex_);
    then_ = std::move(then);
    started_ = true;
    try {
      over_ = !begin();
    } catch (const std::exception& failure) {
      problem_ = std::current_exception();
      over_ = true;
      comm_.abort(failure.what());  // ends what has been posted, too: its memory was in use until then
    }
  }
  watch();
}

void Phased::watch() {
  std::vector<Work> works;
  {
    const std::lock_guard lock(mutex_);
    works = works_;
  }
  const auto left = std::make_shared<std::atomic<std::size_t>>(works.size() + 1);
  const auto one_less = [self = shared_from_this(), left] {
    if (left->fetch_sub(1) == 1) self->step();
  };
  for (Work& work : works) work.on_done(one_less);
  one_less();
}

void Phased::step() {
  std::exception_ptr problem;  // the first one
  std::shared_ptr<Phased> rest;
  bool ends = false;  // here: another thread may end it as soon as the lock is free
  {
    const std::lock_guard lock(mutex_);
    if (ended_ || !started_) return;
    if (!std::ranges::all_of(works_, [](const Work& work) { return work.done(); })) return;
    problem = problem_;
    for (const Work& work : works_)
      if (auto error = work.error(); error && !problem) problem = error;
    try {
      if (!problem && !over_) over_ = !advance();
    } catch (const std::exception& failure) {
      problem = std::current_exception();
      comm_.abort(failure.what());  // the others would wait for what does not come; and nothing uses memory now
    }
    ended_ = ends = problem || over_;
    if (ends) end();
    if (!problem) rest = rest_;
  }
  if (!ends) return watch();
  if (!rest) return finish(problem);
  rest->start([self = shared_from_this(), raw = rest.get()] { self->finish(raw->error()); });
}

void Phased::finish(std::exception_ptr problem) {
  std::function<void()> then;
  {
    const std::lock_guard lock(mutex_);
    problem_ = std::move(problem);
    then = std::exchange(then_, nullptr);
    done_.store(true, std::memory_order_release);
  }
  if (then) then();
}

void Phased::wait() {
  while (!done()) {
    std::vector<Work> works;
    std::shared_ptr<Phased> rest;
    {
      const std::lock_guard lock(mutex_);
      works = works_;
      rest = rest_;
    }
    if (rest) {
      try {
        rest->wait();
      } catch (...) {  // finish() gets it
        std::this_thread::yield();
      }
      continue;
    }
    try {
      Work::wait_all(works);
    } catch (...) {  // step() finds it
    }
    step();
    if (works.empty()) std::this_thread::yield();  // another thread starts it or takes its step
  }
  if (problem_) std::rethrow_exception(problem_);
}

}  // namespace ranvier
