// What all sums that tolerate loss (bounded_operation.h) of a communicator share: the transport's messages, what has
// been learnt of how long they take, how much may still be lacking, and memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
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
  // With shares of senders that all wait for, so that nothing is won by giving up one that stands still for a moment;
  // those that are begun by a rank that waits for nobody, and averages likewise; by sender, since one that is always
  // late must not be taken for one that is late once.
  Patience patience;
  std::vector<Patience> share_patience, average_patience;
  std::atomic<std::uint64_t> pieces_due = 0, pieces_missing = 0;  // any thread

  // Memory of an operation, kept from step to step. The unit may outlive it in the transport, until all have it, and is
  // used again when nobody holds it any more. Any thread.
  using Unit = std::shared_ptr<std::vector<std::byte>>;
  struct Memory {
    std::vector<float> spread;
    Unit unit;
  };
  Memory take();
  void give_back(Memory);

  // See Allowance. Any thread.
  void averages_due(std::size_t pieces);
  bool may_lack(std::size_t pieces);
  void realigned();

 private:
  struct Units {
    std::mutex mutex;
    std::size_t made = 0;
    std::vector<std::unique_ptr<std::vector<std::byte>>> free;
  };
  static Unit unit_of(const std::shared_ptr<Units>&);

  std::mutex mutex_;
  Allowance allowance_;
  std::vector<std::vector<float>> free_;
  const std::shared_ptr<Units> units_ = std::make_shared<Units>();
};

}  // namespace ranvier::engine
