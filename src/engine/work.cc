// The handle of an operation. A finished operation is its own: its engine may be gone, or go while others wait in it.
#include <algorithm>
#include <thread>
#include <utility>

#include "engine/engine.h"
#include "ranvier/communicator.h"
#include "ranvier/timeouts.h"

namespace ranvier {
namespace {

// Whether it ended. An engine that is gone has ended all of its operations.
bool wait_in_its_engine(engine::Operation& operation, std::optional<std::chrono::nanoseconds> limit) {
  if (operation.finished()) return true;
  const auto engine = operation.keeper.lock();
  return engine ? engine->wait(operation, limit) : operation.finished();
}

}  // namespace

void Work::wait() {
  if (!operation_) return;
  wait_in_its_engine(*operation_, std::nullopt);
  if (operation_->error()) std::rethrow_exception(operation_->error());
}
bool Work::wait_for(std::chrono::nanoseconds limit) {
  if (!operation_) return true;
  if (!wait_in_its_engine(*operation_, bounded(limit))) return false;
  if (operation_->error()) std::rethrow_exception(operation_->error());
  return true;
}
void Work::wait_all(std::span<Work> all) {
  // One wait for all, since each begins with taking the driver's seat and ends with giving it up.
  for (auto first = all.begin();
       (first = std::ranges::find_if(first, all.end(), std::not_fn(&Work::done))) != all.end();) {
    const auto keeper = first->operation_->keeper.lock();
    if (!keeper) {  // which has ended it, or is about to
      std::this_thread::yield();
      continue;
    }
    keeper->wait(
        [&, next = first]() mutable {
          next = std::find_if(next, all.end(), [&](const Work& each) {
            return !each.done() && each.operation_->engine == keeper.get();
          });
          return next == all.end();
        },
        std::nullopt);
  }
  for (const Work& each : all)
    if (const auto error = each.error()) std::rethrow_exception(error);
}
bool Work::done() const { return !operation_ || operation_->finished(); }
std::exception_ptr Work::error() const { return operation_ && done() ? operation_->error() : nullptr; }
void Work::on_done(std::function<void()> then) {
  if (const auto engine = done() ? nullptr : operation_->keeper.lock())
    engine->on_done(*operation_, std::move(then));
  else
    engine::call_back(then);
}
std::uint32_t Work::sequence() const { return operation_ ? operation_->entry().sequence : 0; }
std::string Work::flight_record() const {
  const auto engine = operation_ ? operation_->keeper.lock() : nullptr;
  return engine ? engine->recent_operations() : "";
}
std::size_t Work::received_bytes() const { return operation_ && done() ? operation_->received_bytes() : 0; }
Rank Work::source() const { return operation_ && done() ? operation_->source() : -1; }

}  // namespace ranvier
