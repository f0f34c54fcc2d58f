// An all_reduce of gradients that does not wait for the last packets
// (docs/decisions/0014-bounded-loss-is-an-exchange.md): it is part of the order of collectives, with its ticket, its
// deadline and its headers, and all ranks end with the same bits unless they may differ.
//
//  1. Each part of the vector is spread (spread.h) and sent to its owner as a message that is never repeated.
//  2. The owner averages each piece when it is here of all ranks, and when its patience with each of them has ended
//     (patience.h) the others, over the ranks whose piece is here; its own always is.
//  3. It sends them to all others as soon as it has them, so that the line is used both ways all the time, and then
//  which
//     pieces were missing. This has to be whole, so it carries parities (parity.h): a packet that is lost is sent
//     again, but mostly nobody waits for it. All bring the values back.
//
// What was counted in place of a missing x is the average a of the others, so what the rank still owes is x - a: then
// what was applied, times the ranks, and what all still owe add up to the sum of what was given, whatever was lost.
//
// Where ranks may differ until they are realigned (Request::may_differ), nobody waits for somebody who is late, whether
// in 1. or in 3.: there are no headers, patience begins when the own rank does, and in place of averages that are late
// and silent this rank takes its own values, as far as its allowance (allowance.h) reaches. A rank that calls something
// else is found out by the next exact collective, which has another number there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/bounded_tools.h"
#include "engine/calls.h"
#include "engine/collective.h"
#include "engine/operation.h"
#include "engine/parity.h"
#include "engine/patience.h"
#include "engine/spread.h"
#include "ranvier/communicator.h"

namespace ranvier::engine {

class BoundedOperation final : public Operation {
 public:
  // Parts of fewer pieces travel exactly: of so few one is more than anybody means by a small loss.
  static constexpr std::size_t least_pieces = 32;
  // Whether `request` may be sent so. The same on all ranks.
  static bool serves(const Request& request, Rank world);

  // What ranks compare of it, still without a ticket.
  static CollectiveCall call_of(Calls& calls, const Request& request);
  // `call`: that, with its ticket; `number` counts these operations.
  BoundedOperation(std::shared_ptr<BoundedTools> tools, CollectiveCall call, const Request& request,
                   std::uint64_t number, Rank rank, Rank world);
  ~BoundedOperation() override;

  // Nothing of it is run: by its ticket the engine knows whose turn it is.
  CollectiveOperation& collective() { return place_; }

  Progress advance(Transport&, bool briefly) override;
  std::string describe() const override;
  Rank waits_for() const override;
  std::chrono::steady_clock::time_point due() const override { return due_; }
  FlightRecorder::Entry entry() const override;

 private:
  enum class Phase { scatter, gather };
  struct Peer {
    bool announced = false;  // this rank to it, by the collective's header on its lane
    bool is_there = false;   // it to this rank
    bool closed = false;     // what has come of its share in this rank's part is taken
    Patience::Time began = Patience::Time::max();
    PartialMessages::Message share;
    std::size_t end = 0;  // of what has come of it
    ConstBytes values;    // of it, and which of its pieces
    std::vector<std::uint8_t> arrived;
    bool has_average = false;    // of its part
    std::size_t seen = 0;        // pieces of that
    bool has_to_be_all = false;  // the allowance does not reach
    std::size_t finished = 0;    // groups of its part
    PartialMessages::Message average;
  };

  Peer& peer(Rank rank) { return peers_[static_cast<std::size_t>(rank)]; }
  std::span<float> spread_of(Rank part) {
    return std::span(memory_.spread).subspan(static_cast<std::size_t>(part) * layout_.part_values, layout_.part_values);
  }
  // The average of a part, and behind it, by sender, a bit a piece, set where it was missing; then parities.
  Bytes unit_of(Rank part) { return part == rank_ ? Bytes(*memory_.unit) : Bytes(peer(part).average.bytes); }
  std::span<float> average_of(Rank part) {
    return {reinterpret_cast<float*>(unit_of(part).data()), layout_.part_values};
  }
  std::span<std::byte> missing(Rank part, Rank sender) {
    const std::size_t bytes = (layout_.part_pieces() + 7) / 8;
    return unit_of(part).subspan(layout_.part_bytes() + static_cast<std::size_t>(sender) * bytes, bytes);
  }
  // Whether what is behind the average is here, where `arrived` is of the pieces of a unit.
  bool tells_what_was_missing(std::span<const std::uint8_t> arrived) const {
    return std::ranges::count(arrived.first(unit_pieces_).subspan(layout_.part_pieces()), std::uint8_t{0}) == 0;
  }
  std::uint32_t seed_of(Rank part) const {
    return static_cast<std::uint32_t>(number_ * 0x85EBCA6BU + static_cast<std::uint32_t>(part));
  }

  std::uint64_t share_ticket() const { return 2 * number_; }
  std::uint64_t average_ticket() const { return 2 * number_ + 1; }
  std::size_t unit_bytes() const { return unit_pieces_ * PartialMessages::piece_bytes; }
  std::size_t sent_unit_bytes() const {
    return unit_bytes() + parity_pieces(unit_pieces_) * PartialMessages::piece_bytes;
  }

  void start_clock();
  bool announce(Transport&);
  bool look_for_peers(Transport&);
  bool spread_next();
  bool take_what_came();
  Patience::Time share_gone_at(Rank sender, const PartialMessages::Arrival&, Patience::Time now);
  bool average_what_came();
  bool is_decided(std::size_t piece) const;
  void average(std::size_t piece);
  void send(std::span<const PartialMessages::Pieces>);
  void send_rest();
  void note_missing();
  bool take_averages();
  std::size_t lacking(Rank part);
  bool is_late(Rank part, const PartialMessages::Arrival&);
  void note_average(Rank part, const PartialMessages::Arrival&, std::size_t lacking);
  // Groups of a part, at most so many values of each that packets need not wait for them.
  struct Group {
    Rank part = 0;
    std::size_t index = 0;   // in it
    std::size_t begin = 0;   // value of the part
    std::size_t spread = 0;  // values that travel
    std::size_t values = 0;  // of them, without the padding
  };
  Group group_of(Rank part, std::size_t index) const;
  std::span<float> spread_of(const Group& group) { return spread_of(group.part).subspan(group.begin, group.spread); }
  std::span<float> average_of(const Group& group) { return average_of(group.part).subspan(group.begin, group.spread); }
  void fill_in(Rank part);
  bool finish_next();
  void finish(const Group&);
  void keep_what_was_lost(const Group&);

  const std::shared_ptr<BoundedTools> kept_;  // a handle of a finished operation may outlive the communicator
  BoundedTools& tools_;
  const Rank rank_, world_;
  const std::uint64_t number_;
  const ConstTypedSpan input_;
  const TypedSpan output_;
  const std::span<float> lost_;
  const bool may_differ_;
  const ReduceOp op_;
  const SpreadLayout layout_;
  const std::size_t unit_pieces_;
  CollectiveOperation place_;
  BoundedTools::Memory memory_;
  std::vector<Peer> peers_;
  Phase phase_ = Phase::scatter;
  bool has_begun_ = false;
  Rank spread_ = 0;  // parts that are, and groups of the next one
  std::size_t spread_groups_ = 0;
  std::size_t averaged_ = 0;        // pieces of its part, but for
  std::vector<std::size_t> holes_;  // those before it, of which not all ranks' are here
  std::vector<PartialMessages::Pieces> ready_;
  std::vector<std::uint8_t> arrived_;  // of the average that was looked at last
  Patience::Time due_ = Patience::Time::max();
};

}  // namespace ranvier::engine
