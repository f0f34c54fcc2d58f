// Where workers at their own pace get their samples: rank 0 gives them out, whatever thread hears that one is asked
// for.
#pragma once

#include <array>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>

#include "ranvier/communicator.h"
#include "ranvier/server.h"
#include "replica/requests.h"

namespace ranvier::replica {

class SampleDesk {
 public:
  // `workers`: the first ranks. `tag`: of its answers. `comm` outlives this.
  SampleDesk(Communicator& comm, Rank workers, std::optional<std::uint64_t> bound, std::uint64_t before,
             std::uint64_t tag)
      : comm_(comm), tag_(tag), gate_(workers, bound, before) {}

  // Of rank 0. What has been asked for is answered by answer().
  void asks(Rank worker, std::uint64_t stop_at, std::uint64_t most);
  void ended_step(Rank worker, std::uint64_t samples);
  void answer();
  // Of rank 0's own worker, who waits.
  SampleStart begin(std::uint64_t stop_at, std::uint64_t most);
  // Nobody answers any more; begin() throws this.
  void fail(std::exception_ptr failure);

  // Of any other rank's worker: to be received before it asks, and read when that is done.
  using Answer = std::array<std::uint64_t, 3>;
  Work expect(Answer& answer) {
    return comm_.start_recv({answer.data(), sizeof answer, DType::u8}, 0, tag_, longest_wait);
  }
  static SampleStart read(const Answer& answer) { return {answer[0], answer[1], answer[2]}; }

 private:
  Communicator& comm_;
  const std::uint64_t tag_;
  std::mutex mutex_;
  std::condition_variable changed_;
  SampleGate gate_;
  std::optional<SampleStart> own_;
  std::exception_ptr failure_;
};

}  // namespace ranvier::replica
