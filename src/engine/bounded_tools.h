// What all sums that tolerate loss (bounded_operation.h) of a communicator share: the transport's messages, what has
// been learnt of how long they take, how much may still be lacking, and memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "engine/allowance.h"
#include "engine/patience.h"
#include "ranvier/transport.h"
#include "ranvier/types.h"

namespace ranvier::engine {

// Of the driver, but for what is said to be of any thread.
class BoundedTools {
 public:
  // `resync`: steps after which ranks that may differ are realigned; 0: they never differ.
  BoundedTools(PartialMessages& messages_of_transport, double tolerated, std::uint64_t resync, Rank world);

  PartialMessages& messages;
  const double loss;
  const std::uint64_t resync;
  // With shares of senders that all wait for, those that are begun by a rank that waits for nobody, and averages
  // likewise; by sender, since one that is always late must not be taken for one that is late once.
  Patience patience;
  std::vector<Patience> share_patience, average_patience;
  std::atomic<std::uint64_t> pieces_due = 0, pieces_missing = 0;  // any thread

  // Memory of an operation, kept from step to step. Any thread.
  struct Memory {
    std::vector<float> spread;
    std::vector<std::byte> unit;
  };
  Memory take();
  void give_back(Memory);

  // See Allowance. Any thread.
  void averages_due(std::size_t pieces);
  bool may_lack(std::size_t pieces);
  void realigned();

 private:
  std::mutex mutex_;
  Allowance allowance_;
  std::vector<Memory> free_;
};

}  // namespace ranvier::engine
