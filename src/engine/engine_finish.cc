// How operations end, and who is told.
#include <mutex>
#include <utility>

#include "engine/engine.h"

namespace ranvier::engine {

void Engine::finish(const Active& active, std::exception_ptr error) {
  Operation& operation = *active.operation;
  recorder_.end(operation.record, error != nullptr);
  if (active.collective != nullptr) {
    const CollectiveCall& call = active.collective->call();
    turn_[call.ticket.lane] = call.ticket.next;
  }
  if (error == nullptr) traffic_.add(operation, active.collective);
  if (&operation == &inline_) {
    operation.error_ = std::move(error);
    operation.finished_.store(true, std::memory_order_release);
    return;
  }
  {
    const std::lock_guard lock(waiters_mutex_);
    operation.error_ = std::move(error);
    operation.finished_.store(true, std::memory_order_release);
    if (operation.on_done) callbacks_.push_back(std::move(operation.on_done));
    if (sleepers_.load() > 0) waiters_.notify_all();
  }
  pending_.fetch_sub(1);
}

void Engine::on_done(Operation& operation, std::function<void()> then) {
  {
    const std::lock_guard lock(waiters_mutex_);
    if (!operation.finished()) {
      if (operation.on_done)
        operation.on_done = [first = std::move(operation.on_done), then = std::move(then)] {
          call_back(first);
          call_back(then);
        };
      else
        operation.on_done = std::move(then);
      return;
    }
  }
  call_back(then);
}

}  // namespace ranvier::engine
