// Which collectives of a communicator tolerate loss ("udp:loss=0.01"), and how they are started.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "base/rank_names.h"
#include "engine/bounded_tools.h"
#include "engine/calls.h"
#include "engine/operation.h"
#include "ranvier/communicator.h"

namespace ranvier::engine {

class BoundedCalls {
 public:
  // `transport` outlives all operations. Throws Error{config} where the options name a loss, and it has no messages
  // that may be lost.
  BoundedCalls(Transport& transport, const CommunicatorOptions& options);

  // Whether `request` is to be started here. Throws Error{usage} for a Request::lost of a wrong size, or in the memory
  // of the input or the output.
  bool serves(const Request& request) const {
    if (!request.lost.empty()) [[unlikely]]
      check_lost(request);
    return tools_ && !keeps_to_links_ && can_run(request);
  }
  // Throws Error{usage} where `request` makes no sense, and ends the engine with Error{config} where there is no
  // memory.
  std::shared_ptr<Operation> start(Engine&, Calls&, const Request&, std::chrono::nanoseconds timeout);
  // What every other request has to say of what it lost.
  static void lose_nothing(const Request& request) { std::ranges::fill(request.lost, 0.F); }

  // Zero where everything is exact, as what follows.
  double tolerated() const { return tools_ ? tools_->loss : 0; }
  std::uint64_t resync() const { return tools_ ? tools_->resync : 0; }
  LossCounts losses() const;
  // Ranks that may differ are alike again.
  void realigned() const;

 private:
  static void check_lost(const Request&);
  bool can_run(const Request&) const;

  const Rank rank_;
  const Rank world_;
  const RankNames names_;
  const bool keeps_to_links_;                  // of a topology, where ranks do not send to all others
  const std::shared_ptr<BoundedTools> tools_;  // null: all is exact
  std::atomic<std::uint64_t> started_ = 0;
};

}  // namespace ranvier::engine
