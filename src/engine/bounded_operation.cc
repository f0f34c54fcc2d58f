#include "engine/bounded_operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernel/vectors.h"
#include "ranvier/error.h"

namespace ranvier::engine {
namespace {

using Clock = std::chrono::steady_clock;

std::size_t unit_bytes(const SpreadLayout& layout, Rank world) {
  const std::size_t bytes = layout.part_bytes() + (layout.part_pieces() + 7) / 8 * static_cast<std::size_t>(world);
  return (bytes + alignof(float) - 1) / alignof(float) * alignof(float);
}

SpreadLayout layout_of(const Request& request, Rank world) { return {request.input.count, world}; }

}  // namespace

BoundedTools::Memory BoundedTools::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return {};
  Memory memory = std::move(free_.back());
  free_.pop_back();
  return memory;
}

void BoundedTools::give_back(Memory memory) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(memory));
}

bool BoundedOperation::serves(const Request& request, Rank world) {
  return request.tolerates_loss && world > 1 && request.collective == Collective::all_reduce &&
         request.input.dtype == DType::f32 && request.output.dtype == DType::f32 &&
         request.input.count == request.output.count &&
         (request.op == ReduceOp::sum || request.op == ReduceOp::average) &&
         (request.algorithm.empty() || request.algorithm == "auto") &&
         layout_of(request, world).part_pieces() >= least_pieces;
}

BoundedOperation::BoundedOperation(BoundedTools& tools, Calls& calls, const Request& request, const Ticket& ticket,
                                   std::uint32_t number, Rank rank, Rank world)
    : tools_(tools),
      rank_(rank),
      world_(world),
      number_(number),
      input_(request.input),
      output_(request.output),
      lost_(request.lost),
      op_(request.op),
      layout_(layout_of(request, world)),
      unit_bytes_(unit_bytes(layout_, world)),
      memory_(tools.take()),
      senders_(static_cast<std::size_t>(world)),
      counts_(layout_.part_pieces(), 1) {
  memory_.spread.resize(layout_.part_values * static_cast<std::size_t>(world));
  memory_.gathered.resize(unit_bytes_ * static_cast<std::size_t>(world));
  CollectiveCall gather = gather_call(calls, ticket, request.priority);
  bytes_to_each = layout_.part_bytes();
  bytes_to_send = gather.bytes_to_send + bytes_to_each * static_cast<std::size_t>(world - 1);
  bytes_to_receive = gather.bytes_to_receive + bytes_to_each * static_cast<std::size_t>(world - 1);
  priority = request.priority;
  gather_.reset(std::move(gather));
  sender(rank_).announced = sender(rank_).is_there = sender(rank_).closed = true;
}

// In place, over a link to every rank, by which it shows that it is there.
CollectiveCall BoundedOperation::gather_call(Calls& calls, const Ticket& ticket, int urgency) {
  const Bytes own = unit_of(rank_);
  CollectiveCall call = calls.prepare({.collective = Collective::all_gather,
                                       .input = ConstTypedSpan(own.data(), own.size(), DType::u8),
                                       .output = TypedSpan(memory_.gathered.data(), memory_.gathered.size(), DType::u8),
                                       .algorithm = "direct",
                                       .priority = urgency});
  // What the ranks compare is the all_reduce that it is a part of.
  call.header.collective = Collective::all_reduce;
  call.header.dtype = DType::f32;
  call.header.op = op_;
  call.header.size = input_.count;
  call.size_by_link = false;
  call.set_memory(own.data(), memory_.gathered.data());
  call.set_ticket(ticket);
  return call;
}

BoundedOperation::~BoundedOperation() { tools_.give_back(std::move(memory_)); }

// ---- Phases.

Progress BoundedOperation::advance(Transport& transport, bool briefly) {
  bool moved = false;
  for (;;) {
    bool step = false;
    switch (phase_) {
      case Phase::scatter:
        step = announce(transport);
        step |= look_for_senders(transport);
        step |= spread_next();
        step |= take_what_came();
        if (added_ < world_ || !std::ranges::all_of(senders_, &Sender::announced)) break;
        average();
        due_ = Patience::Time::max();
        phase_ = Phase::gather;
        step = true;
        break;
      case Phase::gather: {
        const Progress progress = gather_.advance(transport, briefly);
        step = progress != Progress::blocked;
        if (progress != Progress::done) break;
        // Every owner has closed its part: what has not left by now nobody waits for.
        for (Rank peer = 0; peer < world_; ++peer)
          if (peer != rank_) tools_.messages.withdraw(peer, number_);
        phase_ = Phase::finish;
        break;
      }
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

// By the header of the gather, which comes for certain, though it may come late.
bool BoundedOperation::announce(Transport& transport) {
  bool any = false;
  for (Rank peer = 0; peer < world_; ++peer)
    if (!sender(peer).announced && gather_.announce(transport, peer)) sender(peer).announced = any = true;
  return any;
}

bool BoundedOperation::look_for_senders(Transport& transport) {
  bool any = false;
  for (Rank peer = 0; peer < world_; ++peer) {
    if (sender(peer).is_there || !gather_.is_announced(transport, peer)) continue;
    sender(peer).is_there = any = true;
    sender(peer).began = std::min(sender(peer).began, Clock::now());
  }
  return any;
}

// The parts of those after this rank first, so that not all send to the same one; its own at the end.
bool BoundedOperation::spread_next() {
  if (spread_ == world_) return false;
  const Rank part = (rank_ + ++spread_) % world_;
  const auto* values = static_cast<const float*>(input_.data) + layout_.begin_of(part);
  spread_out({values, layout_.size_of(part)}, spread_of(part), seed_of(part));
  if (part != rank_) tools_.messages.send_once(part, number_, std::as_bytes(spread_of(part)));
  return true;
}

// ---- The owner of a part.

bool BoundedOperation::take_what_came() {
  if (added_ == world_) return false;
  bool any = false;
  due_ = Patience::Time::max();
  for (Rank rank = 0; rank < world_; ++rank) {
    Sender& from = sender(rank);
    if (from.closed) continue;
    const auto arrival = tools_.messages.arrival(rank, number_, layout_.part_bytes());
    if (arrival.pieces > 0) from.began = std::min(from.began, arrival.first_at);
    const Patience::Time until = tools_.patience.until(arrival, layout_.part_pieces(), from.began);
    if (until > Clock::now()) {
      due_ = std::min(due_, until);
      continue;
    }
    from.message = tools_.messages.take(rank, number_, layout_.part_bytes());
    from.closed = any = true;
    if (from.began != Patience::Time::max())
      tools_.patience.took(layout_.part_pieces(), std::max(arrival.newest_at, from.began) - from.began);
  }
  const Rank before = added_;
  if (spread_ == world_) add_in_order();
  return any || added_ > before;
}

// By rank, so that without losses the sum is the same in every run.
void BoundedOperation::add_in_order() {
  const std::span<float> sum = average_of(rank_);
  const std::size_t pieces = layout_.part_pieces();
  for (; added_ < world_ && sender(added_).closed; ++added_) {
    Sender& from = sender(added_);
    const std::span<std::byte> missing = this->missing(rank_, added_);
    std::ranges::fill(missing, std::byte{0});
    if (added_ == 0) std::ranges::fill(sum, 0.F);
    if (added_ == rank_) {
      kernel::add(sum.data(), spread_of(rank_).data(), sum.data(), sum.size());
      continue;
    }
    const auto* values = reinterpret_cast<const float*>(from.message.bytes.data());
    for (std::size_t piece = 0; piece < pieces; ++piece) {
      const std::size_t first = piece * values_a_piece;
      if (from.message.arrived[piece] != 0) {
        kernel::add(sum.data() + first, values + first, sum.data() + first, values_a_piece);
        ++counts_[piece];
      } else {
        missing[piece / 8] |= std::byte{1} << (piece % 8);
      }
    }
    tools_.pieces_due.fetch_add(pieces, std::memory_order_relaxed);
    tools_.pieces_missing.fetch_add(pieces - from.message.pieces, std::memory_order_relaxed);
    tools_.messages.give_back(added_, std::move(from.message));
  }
}

void BoundedOperation::average() {
  float* values = average_of(rank_).data();
  for (const Rank count : counts_) {
    kernel::multiply(values, 1 / static_cast<float>(count), values, values_a_piece);
    values += values_a_piece;
  }
}

// ---- What all have.

void BoundedOperation::finish_next() {
  const Rank part = finished_parts_++;
  const std::size_t begin = layout_.begin_of(part), size = layout_.size_of(part);
  if (!lost_.empty()) keep_what_was_lost(part);
  float* const to = static_cast<float*>(output_.data) + begin;
  bring_back(average_of(part), {to, size}, seed_of(part));
  if (op_ == ReduceOp::sum) kernel::multiply(to, static_cast<float>(world_), to, size);
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
  if (!std::isfinite(kernel::largest_magnitude(lost.data(), lost.size()))) std::ranges::fill(lost, 0.F);
}

// ---- For people.

std::string BoundedOperation::describe() const {
  return fmt::format("all_reduce #{} with bounded loss (f32 x {}, {})", gather_.call().header.sequence, input_.count,
                     name_of(op_));
}

Rank BoundedOperation::waits_for() const {
  if (phase_ != Phase::scatter) return gather_.waits_for();
  for (Rank rank = 0; rank < world_; ++rank) {
    const Sender& each = senders_[static_cast<std::size_t>(rank)];
    if (!each.closed) return rank;
  }
  return -1;
}

FlightRecorder::Entry BoundedOperation::entry() const {
  return {.sequence = gather_.call().header.sequence,
          .collective = Collective::all_reduce,
          .dtype = DType::f32,
          .op = op_,
          .bytes = input_.bytes()};
}

}  // namespace ranvier::engine
