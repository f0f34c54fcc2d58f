// What a communicator has sent and received, as Communicator::traffic tells it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/collective.h"
#include "engine/operation.h"
#include "ranvier/communicator.h"

namespace ranvier::engine {

// The driver adds, any thread reads.
class TrafficMeter {
 public:
  TrafficMeter(Rank rank, Rank world) : rank_(rank), sent_to_(static_cast<std::size_t>(world)) {}

  // An operation that has ended well; `collective` is itself, null of a message.
  void add(const Operation& operation, const CollectiveOperation* collective);

  Traffic total() const {
    return {bytes_sent_.load(std::memory_order_relaxed), bytes_received_.load(std::memory_order_relaxed),
            operations_.load(std::memory_order_relaxed)};
  }
  std::uint64_t sent_to(Rank peer) const {
    return sent_to_[static_cast<std::size_t>(peer)].load(std::memory_order_relaxed);
  }

 private:
  const Rank rank_;
  std::atomic<std::uint64_t> bytes_sent_ = 0;
  std::atomic<std::uint64_t> bytes_received_ = 0;
  std::atomic<std::uint64_t> operations_ = 0;
  std::vector<std::atomic<std::uint64_t>> sent_to_;  // bytes, by rank
};

}  // namespace ranvier::engine
