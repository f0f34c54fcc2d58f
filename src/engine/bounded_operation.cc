#include "engine/bounded_operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/engine.h"
#include "kernel/vectors.h"
#include "ranvier/error.h"

namespace ranvier::engine {
namespace {

using Clock = std::chrono::steady_clock;

// Nothing of a message that was under way before this rank was.
void learn(Patience& patience, std::size_t pieces, const PartialMessages::Arrival& arrival, Patience::Time began,
           bool came_to_its_end) {
  if (arrival.pieces > 0 && arrival.first_at < began) return;
  if (came_to_its_end)
    patience.took(pieces, arrival.newest_at - began);
  else
    patience.took_longer(pieces, Clock::now() - began);
}

SpreadLayout layout_of(const Request& request, Rank world) { return {request.input.count, world}; }

}  // namespace

bool BoundedOperation::serves(const Request& request, Rank world) {
  return request.tolerates_loss && world > 1 && request.collective == Collective::all_reduce &&
         request.input.dtype == DType::f32 && request.output.dtype == DType::f32 &&
         request.input.count == request.output.count &&
         (request.op == ReduceOp::sum || request.op == ReduceOp::average) &&
         (request.algorithm.empty() || request.algorithm == "auto") &&
         layout_of(request, world).part_pieces() >= least_pieces;
}

// The all_reduce that it is; nothing of a program is run.
CollectiveCall BoundedOperation::call_of(Calls& calls, const Request& request) {
  CollectiveCall call = calls.prepare({.collective = Collective::barrier, .priority = request.priority});
  call.header.collective = Collective::all_reduce;
  call.header.dtype = DType::f32;
  call.header.op = request.op;
  call.header.size = request.input.count;
  call.header.algorithm = MessageHeader::bounded_loss;
  call.header.label = request.label;
  call.stamp = CallStamp::of(call.header);
  return call;
}

BoundedOperation::BoundedOperation(std::shared_ptr<BoundedTools> tools, CollectiveCall call, const Request& request,
                                   std::uint32_t number, Rank rank, Rank world)
    : kept_(std::move(tools)),
      tools_(*kept_),
      rank_(rank),
      world_(world),
      number_(number),
      input_(request.input),
      output_(request.output),
      lost_(request.lost),
      may_differ_(request.may_differ && tools_.resync > 0),
      op_(request.op),
      layout_(layout_of(request, world)),
      unit_pieces_(PartialMessages::pieces_of(layout_.part_bytes() +
                                              (layout_.part_pieces() + 7) / 8 * static_cast<std::size_t>(world))),
      memory_(tools_.take()),
      peers_(static_cast<std::size_t>(world)),
      counts_(layout_.part_pieces(), 1) {
  memory_.spread.resize(layout_.part_values * static_cast<std::size_t>(world));
  memory_.unit.resize(sent_unit_bytes());
  priority = request.priority;
  place_.reset(std::move(call));
  bytes_to_each = layout_.part_bytes() + sent_unit_bytes();
  bytes_to_send = bytes_to_receive = bytes_to_each * static_cast<std::size_t>(world - 1);
  peer(rank_).announced = peer(rank_).is_there = peer(rank_).closed = peer(rank_).has_average = true;
  if (may_differ_)
    for (Peer& each : peers_) each.announced = each.is_there = true;
  // Also of operations that have no turn yet, and averages before their owners have them: what one waits for holds up
  // nothing of those behind it.
  for (Rank sender = 0; sender < world; ++sender) {
    if (sender == rank_) continue;
    tools_.messages.expect(sender, share_ticket(), layout_.part_bytes());
    tools_.messages.expect(sender, average_ticket(), sent_unit_bytes());
  }
}

BoundedOperation::~BoundedOperation() { tools_.give_back(std::move(memory_)); }

// ---- Phases.

Progress BoundedOperation::advance(Transport& transport, bool briefly) {
  bool moved = false;
  if (may_differ_ && !has_begun_) start_clock();
  for (;;) {
    bool step = announce(transport);
    step |= look_for_peers(transport);
    switch (phase_) {
      case Phase::scatter:
        step |= spread_next();
        step |= take_what_came();
        if (added_ < world_) break;
        average();
        send_average();
        due_ = Patience::Time::max();
        phase_ = Phase::gather;
        step = true;
        break;
      case Phase::gather:
        step |= take_averages();
        // Headers too, or the next one on their lane would read them.
        if (!std::ranges::all_of(peers_,
                                 [](const Peer& each) { return each.announced && each.is_there && each.has_average; }))
          break;
        // Every owner has closed its part, or, where ranks may differ, is late itself: of what has not left by now
        // nobody is to wait for the rest.
        for (Rank rank = 0; rank < world_; ++rank)
          if (rank != rank_) tools_.messages.withdraw(rank, share_ticket());
        phase_ = Phase::finish;
        step = true;
        break;
      case Phase::finish:
        if (finished_parts_ == world_) return Progress::done;
        finish_next();
        step = true;
        break;
    }
    if (!step) return moved ? Progress::moved : Progress::blocked;
    if (briefly) return Progress::moved;
    moved = true;
  }
}

// Nobody says that it is there: who has nothing here in time is late.
void BoundedOperation::start_clock() {
  has_begun_ = true;
  const Patience::Time now = Clock::now();
  for (Peer& each : peers_) each.began = now;
  tools_.averages_due(unit_pieces_ * static_cast<std::size_t>(world_ - 1));
}

// By a header on the collective's lane, which comes for certain, though it may come late.
bool BoundedOperation::announce(Transport& transport) {
  bool any = false;
  const CollectiveCall& call = place_.call();
  for (Rank rank = 0; rank < world_; ++rank) {
    if (peer(rank).announced) continue;
    if (transport.try_send(rank, call.ticket.lane, std::as_bytes(std::span(&call.header, 1)), {}) == 0) continue;
    peer(rank).announced = any = true;
  }
  return any;
}

bool BoundedOperation::look_for_peers(Transport& transport) {
  bool any = false;
  const CollectiveCall& call = place_.call();
  for (Rank rank = 0; rank < world_; ++rank) {
    if (peer(rank).is_there) continue;
    const ConstBytes view = transport.try_recv(rank, call.ticket.lane, {});
    MessageHeader theirs;
    if (view.size() < sizeof theirs) continue;
    std::memcpy(&theirs, view.data(), sizeof theirs);
    CallHistory& history = engine->history();
    if (!agree(call.header, theirs))
      throw disagreement(rank_, call.header, rank, theirs, engine->options().names,
                         alike_but_for_history(call.header, theirs)
                             ? history.since(rank_, history.alike(rank), engine->last_calls_of(rank))
                             : "");
    history.found_alike(rank, call.header.sequence);
    transport.release(rank, call.ticket.lane, sizeof theirs);
    peer(rank).is_there = any = true;
    peer(rank).began = std::min(peer(rank).began, Clock::now());
  }
  return any;
}

// The parts of those after this rank first, so that not all send to the same one; its own at the end.
bool BoundedOperation::spread_next() {
  if (spread_ == world_) return false;
  const Rank part = (rank_ + ++spread_) % world_;
  const auto* values = static_cast<const float*>(input_.data) + layout_.begin_of(part);
  spread_out({values, layout_.size_of(part)}, spread_of(part), seed_of(part));
  if (part != rank_) tools_.messages.send_once(part, share_ticket(), std::as_bytes(spread_of(part)));
  return true;
}

// ---- The owner of a part.

bool BoundedOperation::take_what_came() {
  if (added_ == world_) return false;
  bool any = false;
  due_ = Patience::Time::max();
  for (Rank rank = 0; rank < world_; ++rank) {
    Peer& from = peer(rank);
    if (from.closed) continue;
    const auto arrival = tools_.messages.arrival(rank, share_ticket(), layout_.part_bytes());
    if (arrival.pieces > 0 && !may_differ_) from.began = std::min(from.began, arrival.first_at);
    Patience& patience = may_differ_ ? tools_.share_patience[static_cast<std::size_t>(rank)] : tools_.patience;
    const Patience::Time gone = may_differ_ && arrival.pieces == 0 ? share_gone_at(rank) : Patience::Time::max();
    const Patience::Time now = Clock::now(),
                         until = std::min(patience.until(arrival, layout_.part_pieces(), from.began), gone);
    if (until > now) {
      due_ = std::min(due_, until);
      continue;
    }
    from.share = tools_.messages.take(rank, share_ticket(), layout_.part_bytes());
    from.closed = any = true;
    if (may_differ_ && gone == Patience::Time::max())
      learn(patience, layout_.part_pieces(), arrival, from.began,
            arrival.last_is_here || until == Patience::Time::min());
    else if (!may_differ_ && arrival.pieces > 0)  // how long nothing took teaches nothing
      patience.took(layout_.part_pieces(), std::max(arrival.newest_at, from.began) - from.began);
  }
  const Rank before = added_;
  if (spread_ == world_) add_in_order();
  return any || added_ > before;
}

// When a share of which nothing has come is given up because its sender's average is here: who averages has sent its
// shares, and who has gone on without this rank has withdrawn what had not left. To wait for that, and to learn from it
// how long shares take, would keep a rank behind that has stalled once.
Patience::Time BoundedOperation::share_gone_at(Rank sender) {
  const auto average = tools_.messages.arrival(sender, average_ticket(), sent_unit_bytes());
  return average.pieces > 0 ? average.newest_at + Patience::first_silence : Patience::Time::max();
}

// By rank, so that without losses the sum is the same in every run.
void BoundedOperation::add_in_order() {
  const std::span<float> sum = average_of(rank_);
  const std::size_t pieces = layout_.part_pieces();
  for (; added_ < world_ && peer(added_).closed; ++added_) {
    Peer& from = peer(added_);
    const std::span<std::byte> missing = this->missing(rank_, added_);
    std::ranges::fill(missing, std::byte{0});
    if (added_ == 0) std::ranges::fill(sum, 0.F);
    if (added_ == rank_) {
      kernel::add(sum.data(), spread_of(rank_).data(), sum.data(), sum.size());
      continue;
    }
    const auto* values = reinterpret_cast<const float*>(from.share.bytes.data());
    for (std::size_t piece = 0; piece < pieces; ++piece) {
      const std::size_t first = piece * values_a_piece;
      if (from.share.arrived[piece] != 0) {
        kernel::add(sum.data() + first, values + first, sum.data() + first, values_a_piece);
        ++counts_[piece];
      } else {
        missing[piece / 8] |= std::byte{1} << (piece % 8);
      }
    }
    tools_.pieces_due.fetch_add(pieces, std::memory_order_relaxed);
    tools_.pieces_missing.fetch_add(pieces - from.share.pieces, std::memory_order_relaxed);
    tools_.messages.give_back(added_, std::move(from.share));
  }
}

void BoundedOperation::average() {
  float* values = average_of(rank_).data();
  for (const Rank count : counts_) {
    kernel::multiply(values, 1 / static_cast<float>(count), values, values_a_piece);
    values += values_a_piece;
  }
}

void BoundedOperation::send_average() {
  add_parities(memory_.unit, unit_pieces_);
  for (Rank distance = 1; distance < world_; ++distance)
    tools_.messages.send_whole((rank_ + distance) % world_, average_ticket(), memory_.unit);
}

// ---- What all have.

bool BoundedOperation::take_averages() {
  bool any = false;
  due_ = Patience::Time::max();
  for (Rank rank = 0; rank < world_; ++rank) {
    Peer& from = peer(rank);
    if (from.has_average) continue;
    const auto arrival = tools_.messages.arrival(rank, average_ticket(), sent_unit_bytes());
    const bool late = may_differ_ && !from.has_to_be_all && is_late(rank, arrival);
    // Fewer pieces than there are of data never make up for it.
    const bool may_be_whole =
        arrival.pieces != std::exchange(from.seen, arrival.pieces) && arrival.pieces >= unit_pieces_;
    if (!may_be_whole && !late) continue;
    const std::size_t lacking = this->lacking(rank);
    if (lacking > 0) {
      from.has_to_be_all = late && !tools_.may_lack(lacking);
      if (!late || from.has_to_be_all) continue;
    }
    from.average = tools_.messages.take(rank, average_ticket(), sent_unit_bytes());
    recover(Bytes(from.average.bytes).first(sent_unit_bytes()), from.average.arrived, unit_pieces_);
    if (may_differ_) note_average(rank, arrival, lacking);
    from.has_average = any = true;
  }
  return any;
}

// Pieces of a part's average that cannot be had now. One of which nobody knows whether this rank's values are in it
// is of no use: they would be neither applied nor owed.
std::size_t BoundedOperation::lacking(Rank part) {
  tools_.messages.look_at(part, average_ticket(), sent_unit_bytes(), arrived_);
  const std::size_t lost = find_recoverable(arrived_, unit_pieces_);
  return tells_what_was_missing(arrived_) ? lost : unit_pieces_;
}

bool BoundedOperation::is_late(Rank part, const PartialMessages::Arrival& arrival) {
  const std::size_t pieces = PartialMessages::pieces_of(sent_unit_bytes());
  const Patience& patience = tools_.average_patience[static_cast<std::size_t>(part)];
  const Patience::Time until = patience.until(arrival, pieces, peer(part).began);
  if (until <= Clock::now()) return true;
  due_ = std::min(due_, until);
  return false;
}

void BoundedOperation::note_average(Rank part, const PartialMessages::Arrival& arrival, std::size_t lacking) {
  learn(tools_.average_patience[static_cast<std::size_t>(part)], PartialMessages::pieces_of(sent_unit_bytes()), arrival,
        peer(part).began, arrival.last_is_here || lacking == 0);
  tools_.pieces_due.fetch_add(unit_pieces_, std::memory_order_relaxed);
  tools_.pieces_missing.fetch_add(lacking, std::memory_order_relaxed);
}

// What did not come, or is of no use: of averages this rank's own values, and of what was missing nothing.
void BoundedOperation::fill_in(Rank part) {
  constexpr std::size_t bytes = PartialMessages::piece_bytes;
  const std::vector<std::uint8_t>& arrived = peer(part).average.arrived;
  const bool is_known = tells_what_was_missing(arrived);
  const ConstBytes own = std::as_bytes(spread_of(part));
  for (std::size_t piece = 0; piece < unit_pieces_; ++piece) {
    if (is_known && arrived[piece] != 0) continue;
    const Bytes to = unit_of(part).subspan(piece * bytes, bytes);
    if (piece < layout_.part_pieces())
      std::ranges::copy(own.subspan(piece * bytes, bytes), to.begin());
    else
      std::ranges::fill(to, std::byte{0});
  }
}

void BoundedOperation::finish_next() {
  const Rank part = finished_parts_++;
  const std::size_t begin = layout_.begin_of(part), size = layout_.size_of(part);
  if (may_differ_ && part != rank_) fill_in(part);
  if (!lost_.empty()) keep_what_was_lost(part);
  float* const to = static_cast<float*>(output_.data) + begin;
  bring_back(average_of(part), {to, size}, seed_of(part));
  if (op_ == ReduceOp::sum) kernel::multiply(to, static_cast<float>(world_), to, size);
  if (part != rank_) tools_.messages.give_back(part, std::move(peer(part).average));
}

void BoundedOperation::keep_what_was_lost(Rank part) {
  const std::span<float> lost = lost_.subspan(layout_.begin_of(part), layout_.size_of(part));
  const std::span<const std::byte> missing = this->missing(part, rank_);
  if (std::ranges::all_of(missing, [](std::byte bits) { return bits == std::byte{0}; })) {
    std::ranges::fill(lost, 0.F);
    return;
  }
  const std::span<float> own = spread_of(part);
  const std::span<const float> average = average_of(part);
  for (std::size_t piece = 0; piece < layout_.part_pieces(); ++piece) {
    const std::size_t first = piece * values_a_piece;
    if ((missing[piece / 8] & std::byte{1} << (piece % 8)) != std::byte{0})
      kernel::subtract(own.data() + first, average.data() + first, own.data() + first, values_a_piece);
    else
      std::fill_n(own.data() + first, values_a_piece, 0.F);
  }
  bring_back(own, lost, seed_of(part));
  // A step that overflowed owes nothing to the next.
  if (!kernel::all_finite(lost)) std::ranges::fill(lost, 0.F);
}

// ---- For people.

std::string BoundedOperation::describe() const {
  return fmt::format("all_reduce {} with bounded loss (f32 x {}, {})", call_number(place_.call().header.sequence),
                     input_.count, name_of(op_));
}

Rank BoundedOperation::waits_for() const {
  for (Rank rank = 0; rank < world_; ++rank) {
    const Peer& each = peers_[static_cast<std::size_t>(rank)];
    if (phase_ == Phase::scatter ? !each.closed : !each.has_average || !each.is_there) return rank;
  }
  return -1;
}

FlightRecorder::Entry BoundedOperation::entry() const {
  return {.sequence = place_.call().header.sequence,
          .collective = Collective::all_reduce,
          .dtype = DType::f32,
          .op = op_,
          .bytes = input_.bytes()};
}

}  // namespace ranvier::engine
