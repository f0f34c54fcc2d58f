// An all_reduce of gradients that does not wait for the last packets
// (docs/decisions/0014-bounded-loss-is-an-exchange.md): it is part of the order of collectives, with its ticket, its
// deadline and its headers, and all ranks end with the same bits.
//
//  1. Each part of the vector is spread (spread.h) and sent to its owner as a message that is never repeated.
//  2. The owner takes what has come of each when its patience ends (patience.h), and averages each piece over the ranks
//     whose piece is here; its own always is.
//  3. An exact all_gather brings every part, and by it the pieces that were missing, to all ranks, which bring the
//  values
//     back.
//
// What was counted in place of a missing x is the average a of the others, so what the rank still owes is x - a: then
// what was applied, times the ranks, and what all still owe add up to the sum of what was given, whatever was lost.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "engine/calls.h"
#include "engine/collective.h"
#include "engine/operation.h"
#include "engine/patience.h"
#include "engine/spread.h"
#include "ranvier/communicator.h"

namespace ranvier::engine {

// What all such operations of a communicator share. Of the driver, but for what is said to be of any thread.
class BoundedTools {
 public:
  BoundedTools(PartialMessages& messages_of_transport, double tolerated)
      : messages(messages_of_transport), loss(tolerated), patience(tolerated) {}

  PartialMessages& messages;
  const double loss;
  Patience patience;
  std::atomic<std::uint64_t> pieces_due = 0, pieces_missing = 0;  // any thread

  // Memory of an operation, kept from step to step. Any thread.
  struct Memory {
    std::vector<float> spread;
    std::vector<std::byte> gathered;
  };
  Memory take();
  void give_back(Memory);

 private:
  std::mutex mutex_;
  std::vector<Memory> free_;
};

class BoundedOperation final : public Operation {
 public:
  // Parts of fewer pieces travel exactly: of so few one is more than anybody means by a small loss.
  static constexpr std::size_t least_pieces = 32;
  // Whether `request` may be sent so. The same on all ranks.
  static bool serves(const Request& request, Rank world);

  // `number` counts these operations.
  BoundedOperation(BoundedTools& tools, Calls& calls, const Request& request, const Ticket& ticket,
                   std::uint32_t number, Rank rank, Rank world);
  ~BoundedOperation() override;

  // By which the engine knows its turn.
  CollectiveOperation& collective() { return gather_; }

  Progress advance(Transport&, bool briefly) override;
  std::string describe() const override;
  Rank waits_for() const override;
  std::chrono::steady_clock::time_point due() const override { return due_; }
  FlightRecorder::Entry entry() const override;

 private:
  enum class Phase { scatter, gather, finish };
  struct Sender {
    bool announced = false;  // this rank to it
    bool is_there = false;   // its announcement is
    bool closed = false;     // what has come of it is taken
    Patience::Time began = Patience::Time::max();
    PartialMessages::Message message;
  };

  Sender& sender(Rank rank) { return senders_[static_cast<std::size_t>(rank)]; }
  std::span<float> spread_of(Rank part) {
    return std::span(memory_.spread).subspan(static_cast<std::size_t>(part) * layout_.part_values, layout_.part_values);
  }
  // Of what is gathered: the average, and behind it, by sender, a bit a piece, set where it is missing.
  Bytes unit_of(Rank part) {
    return Bytes(memory_.gathered).subspan(static_cast<std::size_t>(part) * unit_bytes_, unit_bytes_);
  }
  std::span<float> average_of(Rank part) {
    return {reinterpret_cast<float*>(unit_of(part).data()), layout_.part_values};
  }
  std::span<std::byte> missing(Rank part, Rank sender) {
    const std::size_t bytes = (layout_.part_pieces() + 7) / 8;
    return unit_of(part).subspan(layout_.part_bytes() + static_cast<std::size_t>(sender) * bytes, bytes);
  }
  std::uint32_t seed_of(Rank part) const { return number_ * 0x85EBCA6BU + static_cast<std::uint32_t>(part); }

  CollectiveCall gather_call(Calls&, const Ticket&, int urgency);
  bool announce(Transport&);
  bool look_for_senders(Transport&);
  bool spread_next();
  bool take_what_came();
  void add_in_order();
  void average();
  void finish_next();
  void keep_what_was_lost(Rank part);

  BoundedTools& tools_;
  const Rank rank_, world_;
  const std::uint32_t number_;
  const ConstTypedSpan input_;
  const TypedSpan output_;
  const std::span<float> lost_;
  const ReduceOp op_;
  const SpreadLayout layout_;
  const std::size_t unit_bytes_;
  CollectiveOperation gather_;
  BoundedTools::Memory memory_;
  std::vector<Sender> senders_;
  std::vector<Rank> counts_;  // of ranks, by piece of this rank's part
  Phase phase_ = Phase::scatter;
  Rank spread_ = 0;  // parts that are
  Rank added_ = 0;   // ranks whose parts are in the sum, in their order
  Rank finished_parts_ = 0;
  Patience::Time due_ = Patience::Time::max();
};

}  // namespace ranvier::engine
