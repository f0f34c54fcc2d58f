// What c10d gets back from a call: a c10d::Work with a Future over one or several operations of the engine.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "integrations/torch/staging.h"
#include "integrations/torch/tensors.h"
#include "ranvier/communicator.h"
#include "ranvier/error.h"

namespace ranvier::pytorch {

// One call of c10d. The engine uses the memory of `results`, of `inputs` and of the sources of `write_backs`.
struct Call {
  c10d::OpType type;
  const char* title;                   // as profilers show it: "ranvier:all_reduce"
  std::vector<at::Tensor> results;     // the Future's value
  std::vector<at::Tensor> inputs;      // or packed copies of them; profilers show their shapes
  std::vector<WriteBack> write_backs;  // done before the Future completes, …
  std::function<void()> finish = {};   // … and then this
};

class PendingWork final : public c10d::Work {
 public:
  PendingWork(Rank rank, Call call, std::uint64_t sequence);

  // What goes on once a part has ended well, and may add more parts; on the thread that ended it. It must not keep the
  // communicator alive.
  using Next = std::function<void(PendingWork&, const ranvier::Work&)>;

  // Starts one part by `start() -> ranvier::Work`. What it or `next` throws fails this work, as an error later on
  // would; but a first part that can never be is refused here and now, as Error{usage} that is thrown on.
  template <class Start>
  void add(Start&& start, Next next = {}) {
    try {
      hold(start(), std::move(next));
    } catch (...) {
      not_started(std::current_exception());
    }
  }
  // A part that runs to its end inside `body()`, or is refused likewise. Nothing more is run once a part has failed.
  // What is no Error, such as what interrupts it, is thrown on: it is the caller's own, and not the operation's.
  template <class Body>
  void run(Body&& body) {
    if (failed()) return;
    try {
      body();
    } catch (const Error&) {
      not_started(std::current_exception());
    } catch (...) {
      end_record();
      throw;
    }
  }
  // All parts are started, but for those that others add. Once they have ended, on whatever thread, the Future
  // completes.
  void seal();

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::uint64_t getSequencenumber() const override { return sequence_; }

 private:
  void hold(ranvier::Work part, Next next);
  std::optional<ranvier::Work> part(std::size_t index) const;
  void not_started(std::exception_ptr error);
  void fail(std::exception_ptr error);
  void end_record();  // of torch's profiler
  void wait_at_the_end_of_backward();
  bool failed() const;
  void part_ended();
  void complete();

  Call call_;
  Destinations destinations_;
  const std::uint64_t sequence_;
  const unsigned forks_;  // of this process, when this was made
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::vector<ranvier::Work> parts_;         // guarded by c10d::Work::mutex_
  std::atomic<std::size_t> open_nexts_ = 0;  // that may still add to them
  std::atomic<std::size_t> open_parts_ = 1;  // one is given up by seal()
  std::exception_ptr first_error_;           // of the parts; guarded by c10d::Work::mutex_
};

}  // namespace ranvier::pytorch
