// The handle of an operation. A finished operation is its own: its engine may be gone.
#include <utility>

#include "engine/engine.h"
#include "ranvier/communicator.h"

namespace ranvier {

void Work::wait() {
  if (!operation_->finished()) operation_->engine->wait(*operation_, std::nullopt);
  if (operation_->error()) std::rethrow_exception(operation_->error());
}
bool Work::wait_for(std::chrono::nanoseconds limit) {
  if (!operation_->finished() && !operation_->engine->wait(*operation_, limit)) return false;
  if (operation_->error()) std::rethrow_exception(operation_->error());
  return true;
}
bool Work::done() const { return operation_->finished(); }
std::exception_ptr Work::error() const { return operation_->finished() ? operation_->error() : nullptr; }
void Work::on_done(std::function<void()> then) {
  if (operation_->finished())
    then();
  else
    operation_->engine->on_done(*operation_, std::move(then));
}
std::uint32_t Work::sequence() const { return operation_->entry().sequence; }
std::size_t Work::received_bytes() const { return operation_->finished() ? operation_->received_bytes() : 0; }
Rank Work::source() const { return operation_->finished() ? operation_->source() : -1; }

}  // namespace ranvier
