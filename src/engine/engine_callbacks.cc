// Callbacks of operations that have ended, and who takes over behind one that waits.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "base/thread.h"

#include "engine/engine.h"
#include "ranvier/callback.h"

namespace ranvier {
namespace {

thread_local bool calls_back = false;

}  // namespace

bool in_callback() { return calls_back; }

namespace engine {

void call_back(const std::function<void()>& callback) {
  const auto say = [](const char* what) {
    std::fprintf(stderr, "ranvier: a callback of an operation that has ended threw, and nobody can be told: %s\n",
                 what);
  };
  try {
    callback();
  } catch (const std::exception& error) {
    say(error.what());
  } catch (...) {
    say("what is no exception");
  }
}

void Engine::unlock_and_call_back() {
  std::vector<std::function<void()>> callbacks;
  callbacks.swap(callbacks_);
  driver_.unlock();
  if (callbacks.empty()) return;
  calling_back_.fetch_add(1);
  const bool outer = std::exchange(calls_back, true);
  for (const auto& callback : callbacks) call_back(callback);
  calls_back = outer;
  calling_back_.fetch_sub(1);
}

// A callback may wait for what its own engine has yet to move, where this library does not see it: in a future, a lock,
// a thread. It is on the thread that would drive, and the background thread leaves the seat to that one, or is it. So
// nothing moves, nor would a deadline pass. Whoever takes the seat leaves it when the callback has returned.
void Engine::relieve() {
  const bool stands_still = calling_back_.load() > 0 && pending_.load() > 0 && driver_.is_free() && !stop_.load();
  const bool for_long = std::exchange(stood_still_, stands_still) && stands_still;
  const std::shared_ptr<Engine> self = weak_from_this().lock();
  if (!for_long || !self) return;
  const std::lock_guard lock(reliefs_mutex_);
  std::erase_if(reliefs_, [](Relief& each) {
    if (each.over->load()) each.thread.join();
    return !each.thread.joinable();
  });
  if (stop_.load()) return;
  const auto over = std::make_shared<std::atomic<bool>>(false);
  try {
    reliefs_.push_back({start_thread("operations behind callbacks that wait",
                                     [self, over] {
                                       const auto until = [&] {
                                         return self->pending_.load() == 0 || self->calling_back_.load() == 0 ||
                                                self->stop_.load();
                                       };
                                       if (self->driver_.try_lock()) self->drive(until, Pace::background);
                                       over->store(true);
                                     }),
                        over});
  } catch (const Error&) {  // no thread is to be had now
  }
}

void Engine::join_reliefs() {
  std::vector<Relief> reliefs;
  {
    const std::lock_guard lock(reliefs_mutex_);
    reliefs.swap(reliefs_);
  }
  for (Relief& relief : reliefs) {
    if (relief.thread.get_id() == std::this_thread::get_id())
      relief.thread.detach();  // it closes in a callback of its own, and keeps the engine until that has returned
    else
      relief.thread.join();
  }
}

}  // namespace engine
}  // namespace ranvier
