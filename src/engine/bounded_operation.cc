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
                                   std::uint64_t number, Rank rank, Rank world)
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
      peers_(static_cast<std::size_t>(world)) {
  memory_.spread.resize(layout_.part_values * static_cast<std::size_t>(world));
  memory_.unit->resize(sent_unit_bytes());
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
        step |= average_what_came();
        if (averaged_ < layout_.part_pieces() || !std::ranges::all_of(peers_, &Peer::closed)) break;
        note_missing();
        send_rest();
        due_ = Patience::Time::max();
        phase_ = Phase::gather;
        step = true;
        break;
      case Phase::gather:
        step |= take_averages();
        step |= finish_next();
        // Headers too, or the next one on their lane would read them.
        if (!std::ranges::all_of(peers_,
                                 [](const Peer& each) { return each.announced && each.is_there && each.has_average; }))
          break;
        if (!std::ranges::all_of(peers_, [&](const Peer& each) { return each.finished == layout_.part_groups(); }))
          break;
        return Progress::done;
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

BoundedOperation::Group BoundedOperation::group_of(Rank part, std::size_t index) const {
  const std::size_t begin = index * spread_group, size = layout_.size_of(part);
  return {.part = part,
          .index = index,
          .begin = begin,
          .spread = std::min(spread_group, layout_.part_values - begin),
          .values = std::min(spread_group, size - std::min(size, begin))};
}

// The parts of those after this rank first, so that not all send to the same one; its own at the end.
bool BoundedOperation::spread_next() {
  if (spread_ == world_) return false;
  const Group group = group_of((rank_ + spread_ + 1) % world_, spread_groups_);
  const auto* values = static_cast<const float*>(input_.data) + layout_.begin_of(group.part) + group.begin;
  spread_out({values, group.values}, spread_of(group), seed_of(group.part), group.index);
  if (group.part != rank_)
    tools_.messages.send_once(group.part, share_ticket(), std::as_bytes(spread_of(group.part)),
                              {group.begin / values_a_piece, group.spread / values_a_piece});
  if (++spread_groups_ < layout_.part_groups()) return true;
  spread_groups_ = 0;
  if (++spread_ == world_) clear_parities(*memory_.unit, unit_pieces_);
  return true;
}

// ---- The owner of a part.

bool BoundedOperation::take_what_came() {
  bool any = false;
  due_ = Patience::Time::max();
  for (Rank rank = 0; rank < world_; ++rank) {
    Peer& from = peer(rank);
    if (from.closed) continue;
    const auto arrival = tools_.messages.arrival(rank, share_ticket(), layout_.part_bytes());
    if (arrival.pieces > 0 && !may_differ_) from.began = std::min(from.began, arrival.first_at);
    Patience& patience = may_differ_ ? tools_.share_patience[static_cast<std::size_t>(rank)] : tools_.patience;
    const Patience::Time now = Clock::now(), gone = share_gone_at(rank, arrival, now),
                         until = std::min(patience.until(arrival, layout_.part_pieces(), from.began), gone);
    if (until > now) {
      due_ = std::min(due_, until);
      if (arrival.end > from.end)
        from.values = tools_.messages.look_at(rank, share_ticket(), layout_.part_bytes(), from.arrived);
      from.end = arrival.end;
      continue;
    }
    from.share = tools_.messages.take(rank, share_ticket(), layout_.part_bytes());
    from.values = from.share.bytes;
    from.arrived = from.share.arrived;
    from.end = layout_.part_pieces();
    from.closed = any = true;
    if (arrival.pieces == 0 && (!may_differ_ || gone <= now)) continue;  // how long nothing took teaches nothing
    if (may_differ_)
      learn(patience, layout_.part_pieces(), arrival, from.began,
            arrival.last_is_here || patience.is_enough(arrival, layout_.part_pieces()) || gone <= now);
    else
      patience.took(layout_.part_pieces(), std::max(arrival.newest_at, from.began) - from.began);
  }
  return any;
}

// When no more of a share will come because its sender's average does: who averages has sent its shares before, and who
// has gone on without this rank has withdrawn what had not left. To wait for that, and to learn from it how long shares
// take, would keep a rank behind that has stalled once. Looked at only when the share itself stands still.
Patience::Time BoundedOperation::share_gone_at(Rank sender, const PartialMessages::Arrival& share, Patience::Time now) {
  if (share.newest_at + share.reordering > now) {
    due_ = std::min<Patience::Time>(due_, share.newest_at + share.reordering);
    return Patience::Time::max();
  }
  const auto average = tools_.messages.arrival(sender, average_ticket(), sent_unit_bytes());
  return average.pieces > 0 ? average.first_at + average.reordering : Patience::Time::max();
}

// The pieces of which all are here, so that they leave while the others come. Of a share that is still open one that is
// missing may only be late.
bool BoundedOperation::average_what_came() {
  if (spread_ < world_) return false;
  std::size_t end = layout_.part_pieces();
  for (Rank rank = 0; rank < world_; ++rank)
    if (rank != rank_) end = std::min(end, peer(rank).end);
  ready_.clear();
  const bool any = averaged_ < end;
  for (; averaged_ < end; ++averaged_) {
    if (!is_decided(averaged_)) {
      holes_.push_back(averaged_);
      continue;
    }
    average(averaged_);
    if (!ready_.empty() && ready_.back().first + ready_.back().count == averaged_)
      ++ready_.back().count;
    else
      ready_.push_back({averaged_, 1});
  }
  send(ready_);
  return any;
}

bool BoundedOperation::is_decided(std::size_t piece) const {
  return std::ranges::all_of(peers_, [&](const Peer& each) { return each.closed || each.arrived[piece] != 0; });
}

// By rank, so that without losses the sum is the same in every run.
void BoundedOperation::average(std::size_t piece) {
  const std::size_t first = piece * values_a_piece;
  float* const sum = average_of(rank_).data() + first;
  std::fill_n(sum, values_a_piece, 0.F);
  Rank count = 0;
  for (Rank rank = 0; rank < world_; ++rank) {
    const Peer& from = peer(rank);
    if (rank != rank_ && from.arrived[piece] == 0) continue;
    const float* const values =
        rank == rank_ ? spread_of(rank_).data() : reinterpret_cast<const float*>(from.values.data());
    kernel::add(sum, values + first, sum, values_a_piece);
    ++count;
  }
  kernel::multiply(sum, 1 / static_cast<float>(count), sum, values_a_piece);
  add_to_parities(*memory_.unit, unit_pieces_, piece);
}

void BoundedOperation::send(std::span<const PartialMessages::Pieces> pieces) {
  if (pieces.empty()) return;
  for (Rank distance = 1; distance < world_; ++distance)
    tools_.messages.send_whole((rank_ + distance) % world_, average_ticket(), *memory_.unit, memory_.unit, pieces);
}

// What had to wait until it was known what is missing, and the list of that.
void BoundedOperation::send_rest() {
  ready_.clear();
  for (const std::size_t piece : holes_) {
    average(piece);
    ready_.push_back({piece, 1});
  }
  for (std::size_t piece = layout_.part_pieces(); piece < unit_pieces_; ++piece)
    add_to_parities(*memory_.unit, unit_pieces_, piece);
  ready_.push_back({layout_.part_pieces(), PartialMessages::pieces_of(sent_unit_bytes()) - layout_.part_pieces()});
  send(ready_);
  for (Rank rank = 0; rank < world_; ++rank)
    if (rank != rank_) tools_.messages.give_back(rank, std::move(peer(rank).share));
}

void BoundedOperation::note_missing() {
  const std::size_t pieces = layout_.part_pieces();
  std::ranges::fill(unit_of(rank_).subspan(layout_.part_bytes(), unit_bytes() - layout_.part_bytes()), std::byte{0});
  for (Rank rank = 0; rank < world_; ++rank) {
    if (rank == rank_) continue;
    const std::span<std::byte> missing = this->missing(rank_, rank);
    for (std::size_t piece = 0; piece < pieces; ++piece)
      if (peer(rank).arrived[piece] == 0) missing[piece / 8] |= std::byte{1} << (piece % 8);
    tools_.pieces_due.fetch_add(pieces, std::memory_order_relaxed);
    tools_.pieces_missing.fetch_add(pieces - peer(rank).share.pieces, std::memory_order_relaxed);
  }
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
    if (may_differ_) {
      note_average(rank, arrival, lacking);
      fill_in(rank);
    }
    from.has_average = any = true;
    // It has closed its part, or, where ranks may differ, is late itself: of what has not left by now it is not to wait
    // for the rest.
    tools_.messages.withdraw(rank, share_ticket());
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

// Group by group, since packets do not move meanwhile; its own part first, which waits for nobody.
bool BoundedOperation::finish_next() {
  for (Rank distance = 0; distance < world_; ++distance) {
    const Rank part = (rank_ + distance) % world_;
    Peer& of = peer(part);
    if (!of.has_average || of.finished == layout_.part_groups()) continue;
    finish(group_of(part, of.finished++));
    if (of.finished == layout_.part_groups() && part != rank_) tools_.messages.give_back(part, std::move(of.average));
    return true;
  }
  return false;
}

void BoundedOperation::finish(const Group& group) {
  if (!lost_.empty()) keep_what_was_lost(group);
  float* const to = static_cast<float*>(output_.data) + layout_.begin_of(group.part) + group.begin;
  bring_back(average_of(group), {to, group.values}, seed_of(group.part), group.index);
  if (op_ == ReduceOp::sum) kernel::multiply(to, static_cast<float>(world_), to, group.values);
}

void BoundedOperation::keep_what_was_lost(const Group& group) {
  const std::span<float> lost = lost_.subspan(layout_.begin_of(group.part) + group.begin, group.values);
  const std::span<const std::byte> missing = this->missing(group.part, rank_);
  const std::size_t first_piece = group.begin / values_a_piece;
  const std::span<float> own = spread_of(group);
  const std::span<const float> average = average_of(group);
  bool any = false;
  for (std::size_t first = 0; first < own.size(); first += values_a_piece) {
    const std::size_t piece = first_piece + first / values_a_piece;
    if ((missing[piece / 8] & std::byte{1} << (piece % 8)) != std::byte{0}) {
      kernel::subtract(own.data() + first, average.data() + first, own.data() + first, values_a_piece);
      any = true;
    } else {
      std::fill_n(own.data() + first, values_a_piece, 0.F);
    }
  }
  if (!any) {
    std::ranges::fill(lost, 0.F);
    return;
  }
  bring_back(own, lost, seed_of(group.part), group.index);
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
