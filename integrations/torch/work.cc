#include "integrations/torch/work.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <thread>

#include "integrations/torch/errors.h"
#include "integrations/torch/forks.h"
#include "ranvier/timeouts.h"

namespace ranvier::pytorch {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

// Whoever waits looks that often whether another thread has added the next part.
constexpr auto a_moment = std::chrono::microseconds(20);

constexpr int no_graph_task = -1;

bool is_usage(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& ours) {
    return ours.kind() == ErrorKind::usage;
  } catch (...) {
    return false;
  }
}

}  // namespace

PendingWork::PendingWork(Rank rank, Call call, std::uint64_t sequence)
    : c10d::Work(rank, call.type, call.title, call.inputs),
      call_(std::move(call)),
      destinations_(call_.results),
      sequence_(sequence),
      forks_(forks()),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                       destinations_.devices())) {}

void PendingWork::hold(ranvier::Work part, Next next) {
  ++open_parts_;
  if (next) ++open_nexts_;
  {
    const std::lock_guard lock(mutex_);
    parts_.push_back(part);
  }
  // The engine's callback owns this work, and with it the tensors, until the part has ended: a caller may drop its
  // handle.
  part.on_done([self = c10::intrusive_ptr<PendingWork>::reclaim_copy(this), part, next = std::move(next)] {
    if (const std::exception_ptr error = part.error()) {
      self->fail(error);
    } else if (next) {
      try {
        next(*self, part);
      } catch (...) {
        self->fail(std::current_exception());
      }
    }
    if (next) --self->open_nexts_;
    self->part_ended();
  });
}

std::optional<ranvier::Work> PendingWork::part(std::size_t index) const {
  const std::lock_guard lock(mutex_);
  return index < parts_.size() ? std::optional(parts_[index]) : std::nullopt;
}

void PendingWork::not_started(std::exception_ptr error) {
  const bool is_first = !part(0);
  fail(error);
  if (!is_first || !is_usage(error)) return;
  end_record();
  std::rethrow_exception(first_error_);  // nothing is under way, and nobody else has this work
}

void PendingWork::end_record() {
  if (recordFunctionEndCallback_) recordFunctionEndCallback_();
}

void PendingWork::fail(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (!first_error_) first_error_ = to_torch(std::move(error));
}

bool PendingWork::failed() const {
  const std::lock_guard lock(mutex_);
  return first_error_ != nullptr;
}

void PendingWork::seal() { part_ended(); }

void PendingWork::part_ended() {
  if (--open_parts_ == 0) complete();
}

void PendingWork::complete() {
  std::optional<WritingStreams> streams;  // until the end: the Future has whoever uses the results wait for them
  try {
    if (!first_error_) {
      streams.emplace(destinations_);
      write_back(call_.write_backs);
      if (call_.finish) call_.finish();
      streams->synchronize();
    }
  } catch (...) {
    fail(std::current_exception());
  }
  call_.inputs.clear();
  call_.write_backs.clear();
  call_.finish = {};
  end_record();
  if (first_error_)
    future_->setError(first_error_);
  else
    future_->markCompleted(c10::IValue(call_.results));
}

bool PendingWork::isCompleted() {
  if (future_->completed()) return true;
  require_no_fork_since(forks_, rank_);  // there it would never be
  return false;
}

bool PendingWork::isSuccess() const { return future_->completed() && !future_->hasError(); }

std::exception_ptr PendingWork::exception() const {
  return future_->completed() ? future_->exception_ptr() : std::exception_ptr();
}

// Waits on the parts and not on the Future, because whoever waits on a part drives the engine: no thread has to be
// woken.
bool PendingWork::wait(milliseconds timeout) {
  // The parent's engine cannot be driven here.
  if (forks() != forks_ && !future_->completed()) require_no_fork_since(forks_, rank_);
  const bool forever =
      timeout <= milliseconds::zero();  // kNoTimeout, kUnsetTimeout: operations have their own deadline
  const auto deadline = steady_clock::now() + bounded(timeout);
  for (std::size_t index = 0;;) {
    const bool last = open_nexts_.load() == 0;  // read first: what they add is there when they are gone
    auto next = part(index);
    if (!next && last) break;
    bool ended = forever || steady_clock::now() < deadline;
    try {
      if (!next)
        std::this_thread::sleep_for(a_moment);
      else if (forever)
        next->wait();
      else
        ended = next->wait_for(std::max(deadline - steady_clock::now(), steady_clock::duration::zero()));
    } catch (const Error&) {
      // The Future has it.
    }
    if (next) ++index;
    if (!ended)
      std::rethrow_exception(to_torch(std::make_exception_ptr(
          Error(ErrorKind::timeout, std::string(call_.title) + " is not done after the " +
                                        std::to_string(timeout.count()) + " ms that wait() was given; it goes on")
              .with_flight_record(next ? next->flight_record() : ""))));
  }
  future_->waitAndThrow();  // another thread may have finished the last part, and still be writing results back
  return true;
}

void PendingWork::synchronize() { wait(kNoTimeout); }

int PendingWork::sourceRank() const {
  const auto first = part(0);
  return first ? first->source() : -1;
}

std::vector<at::Tensor> PendingWork::result() {
  TORCH_CHECK(isSuccess(), call_.title, " has no result yet: wait() for it first");
  return call_.results;
}

c10::intrusive_ptr<c10::ivalue::Future> PendingWork::getFuture() {
  if (future_->completed()) return future_;
  require_no_fork_since(forks_, rank_);
  if (torch::autograd::get_current_graph_task_id() != no_graph_task) wait_at_the_end_of_backward();
  return future_;
}

// DDP waits there for the Futures of its buckets, and nothing interrupts the wait for a Future of torch's, nor does it
// move what it waits for. What it called for later it does later: so this wait comes first.
void PendingWork::wait_at_the_end_of_backward() {
  torch::autograd::Engine::get_default_engine().queue_callback(
      [weak = c10::weak_intrusive_ptr<PendingWork>(c10::intrusive_ptr<PendingWork>::reclaim_copy(this))] {
        if (torch::autograd::get_current_node()) return;  // of a backward within another, which has more to do
        const auto self = weak.lock();
        if (!self) return;
        try {
          self->wait(kNoTimeout);
        } catch (const c10::Error&) {
          // The Future has it.
        }
      });
}

}  // namespace ranvier::pytorch
