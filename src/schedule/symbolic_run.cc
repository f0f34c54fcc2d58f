#include "schedule/symbolic_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "ranvier/error.h"

namespace ranvier::schedule_detail {
namespace {

constexpr std::size_t element = verified_element_bytes;

std::size_t elements_of(const std::vector<Extent>& extents) {
  return extents.empty() ? 0 : (extents.back().offset + extents.back().bytes) / element;
}

constexpr std::string_view verb(Action action) {
  switch (action) {
    case Action::send:
      return "sends";
    case Action::recv:
      return "receives";
    case Action::recv_reduce:
      return "receives and reduces";
    case Action::copy:
      return "copies";
    case Action::reduce:
      return "reduces";
  }
  return "?";
}

}  // namespace

SymbolicRun::SymbolicRun(const Schedule& schedule, std::span<const Layout> layouts, std::span<const Program> programs,
                         const VerifyOptions& options)
    : schedule_(schedule),
      layouts_(layouts),
      programs_(programs),
      options_(options),
      states_(static_cast<std::size_t>(schedule.world)) {
  for (Rank rank = 0; rank < schedule.world; ++rank) prepare(rank);
}

void SymbolicRun::prepare(Rank rank) {
  const Layout& layout = layouts_[static_cast<std::size_t>(rank)];
  State& state = at(rank);
  state.input_size = elements_of(layout.input);
  state.output_size = elements_of(layout.output);
  if (options_.in_place) {
    const InPlace offset = in_place_offset(schedule_, rank, layout);
    state.input_at = offset.input_in_output / element;
    state.output_at = offset.output_in_input / element;
  } else {
    state.output_at = state.input_size;
  }
  state.user.resize(std::max(state.input_at + state.input_size, state.output_at + state.output_size));
  state.scratch.resize((program(rank).scratch_bytes + element - 1) / element);
  for (std::size_t i = 0; i < state.input_size; ++i)
    state.user[state.input_at + i].value = values_.contribution(rank, static_cast<std::uint32_t>(i));
  hold_answers(rank);
}

// As if every message that may be answered in place were.
void SymbolicRun::hold_answers(Rank rank) {
  const auto& sends = program(rank).sends;
  if (options_.unanswered == 0 || std::ranges::none_of(sends, [](const Instruction& send) { return send.answer != 0; }))
    return;
  std::vector<std::uint32_t>& held = at(rank).held;
  held.resize(sends.size());
  std::unordered_map<Rank, std::vector<std::uint32_t>> answers;  // of all before, by link
  for (std::size_t i = 0; i < sends.size(); ++i) {
    auto& before = answers[sends[i].peer];
    if (before.size() >= options_.unanswered) held[i] = before[before.size() - options_.unanswered];
    before.push_back(sends[i].answer);
  }
}

void SymbolicRun::check_programs() const {
  for (Rank rank = 0; rank < schedule_.world; ++rank) {
    for (const Instruction& instruction : program(rank).sends) check_shape(rank, instruction);
    for (const Instruction& instruction : program(rank).receives) check_shape(rank, instruction);
  }
}

void SymbolicRun::run() {
  for (Rank rank = 0; rank < schedule_.world; ++rank) wake(rank);
  while (!awake_.empty()) {
    const Rank rank = awake_.front();
    awake_.pop_front();
    at(rank).queued = false;
    advance(rank);
  }
  check_all_done();
}

Values::Id SymbolicRun::output(Rank rank, std::size_t i) const {
  const State& state = at(rank);
  return state.user[state.output_at + i].value;
}

void SymbolicRun::wake(Rank rank) {
  State& state = at(rank);
  if (!state.queued) awake_.push_back(rank);
  state.queued = true;
}

void SymbolicRun::advance(Rank rank) {
  while (advance_sends(rank) || advance_receives(rank)) {
  }
}

bool SymbolicRun::advance_sends(Rank rank) {
  if (!ready({rank, List::sends})) return false;
  const Instruction& send = *next_send(rank);
  if (options_.buffered_slices == 0) return deliver_at_once(rank, send.peer);
  Link& out = buffered(rank, send.peer);
  if (out.size() >= options_.buffered_slices) return false;
  take_up(rank, send, out.emplace_back(Message{&send, {}}).values);
  ++at(rank).sends;
  wake(send.peer);
  return true;
}

bool SymbolicRun::advance_receives(Rank rank) {
  if (!ready({rank, List::receives})) return false;
  const Instruction& instruction = *next_receive(rank);
  if (instruction.action == Action::copy || instruction.action == Action::reduce) {
    compute(rank, instruction);
    ++at(rank).receives;
    return true;
  }
  if (options_.buffered_slices == 0) return deliver_at_once(instruction.peer, rank);
  Link& in = buffered(instruction.peer, rank);
  if (in.empty()) return false;
  receive(rank, instruction, *in.front().send, in.front().values);
  in.erase(in.begin());
  ++at(rank).receives;
  wake(instruction.peer);
  return true;
}

// A rendezvous: both or neither.
bool SymbolicRun::deliver_at_once(Rank from, Rank to) {
  if (!ready({from, List::sends}) || !ready({to, List::receives})) return false;
  const Instruction& send = *next_send(from);
  const Instruction& instruction = *next_receive(to);
  const bool transfer = instruction.action == Action::recv || instruction.action == Action::recv_reduce;
  if (send.peer != to || !transfer || instruction.peer != from) return false;
  take_up(from, send, moving_);
  receive(to, instruction, send, moving_);
  ++at(from).sends;
  ++at(to).receives;
  wake(from);
  wake(to);
  return true;
}

void SymbolicRun::take_up(Rank rank, const Instruction& send, Ids& values) {
  State& state = at(rank);
  state.receives_waited = std::max(state.receives_waited, send.after);
  values.clear();
  for (Cell& cell : cells(rank, send.from_buffer, send.from, send.bytes)) {
    if (cell.value == Values::nothing) fault(rank, send, "reads memory that nothing was written to");
    if (cell.written > state.receives_waited) fault(rank, send, "does not wait until what it reads has been written");
    cell.sent = static_cast<std::uint32_t>(state.sends + 1);
    values.push_back(cell.value);
  }
}

void SymbolicRun::receive(Rank rank, const Instruction& instruction, const Instruction& send, Ids& values) {
  check_ends_of_link(rank, instruction, send);
  if (instruction.action == Action::recv_reduce) {
    const auto own = cells(rank, instruction.from_buffer, instruction.from, instruction.bytes);
    for (std::size_t i = 0; i < own.size(); ++i) values[i] = combine(rank, instruction, own[i].value, values[i]);
  }
  write(rank, instruction, values);
}

void SymbolicRun::compute(Rank rank, const Instruction& instruction) {
  const auto from = cells(rank, instruction.from_buffer, instruction.from, instruction.bytes);
  const auto to = cells(rank, instruction.to_buffer, instruction.to, instruction.bytes);
  moving_.clear();
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i].value == Values::nothing) fault(rank, instruction, "reads memory that nothing was written to");
    moving_.push_back(instruction.action == Action::copy ? from[i].value
                                                         : combine(rank, instruction, to[i].value, from[i].value));
  }
  write(rank, instruction, moving_);
}

void SymbolicRun::write(Rank rank, const Instruction& instruction, const Ids& values) {
  State& state = at(rank);
  state.sends_waited = std::max(state.sends_waited, instruction.after);
  const auto to = cells(rank, instruction.to_buffer, instruction.to, instruction.bytes);
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (to[i].sent > state.sends_waited)
      fault(rank, instruction, "does not wait until what it overwrites has been sent");
    to[i].value = values[i];
    to[i].written = static_cast<std::uint32_t>(state.receives + 1);
  }
}

Values::Id SymbolicRun::combine(Rank rank, const Instruction& instruction, Values::Id own, Values::Id other) {
  if (own == Values::nothing) fault(rank, instruction, "reads memory that nothing was written to");
  if (values_[own].complete || values_[other].complete)
    fault(rank, instruction, "adds to a result that was complete already");
  const Values::Id sum = values_.reduce(own, other, instruction.completes);
  const auto world = static_cast<std::uint32_t>(schedule_.world);
  if (values_[sum].count > world || (instruction.completes && values_[sum].count < world))
    fault(rank, instruction,
          fmt::format("{} {} contributions, but there are {}",
                      instruction.completes ? "completes a result of" : "adds up", values_[sum].count, world));
  return sum;
}

void SymbolicRun::check_ends_of_link(Rank rank, const Instruction& instruction, const Instruction& send) const {
  if (send.bytes != instruction.bytes)
    fault(rank, instruction,
          fmt::format("expects {} bytes, but rank {} sends {} bytes of {} in round {}", instruction.bytes,
                      instruction.peer, send.bytes, name(instruction.peer, send.from_buffer, send.from), send.round));
  if (send.round != instruction.round)
    fault(rank, instruction, fmt::format("gets what rank {} sends in round {}", instruction.peer, send.round));
}

void SymbolicRun::check_shape(Rank rank, const Instruction& instruction) const {
  const State& state = at(rank);
  const auto fits = [&](Buffer buffer, std::size_t offset) {
    const std::size_t size = buffer == Buffer::input    ? state.input_size
                             : buffer == Buffer::output ? state.output_size
                                                        : state.scratch.size();
    return instruction.bytes <= size * element && offset <= size * element - instruction.bytes &&
           offset % element == 0 && instruction.bytes % element == 0;
  };
  const bool transfer = instruction.action != Action::copy && instruction.action != Action::reduce;
  if (transfer && (instruction.peer < 0 || instruction.peer >= schedule_.world || instruction.peer == rank))
    fault(rank, instruction, fmt::format("has no such peer in a world of {}", schedule_.world));
  const auto& list = instruction.action == Action::send ? program(rank).sends : program(rank).receives;
  const bool sends = &instruction >= list.data() && &instruction < list.data() + list.size();
  if (!sends) fault(rank, instruction, "stands in the wrong list");
  if ((instruction.action != Action::recv && !fits(instruction.from_buffer, instruction.from)) ||
      (instruction.action != Action::send && !fits(instruction.to_buffer, instruction.to)))
    fault(rank, instruction, "leaves its buffer or splits an element");
  if (instruction.action != Action::send && instruction.to_buffer == Buffer::input)
    fault(rank, instruction, "writes to the input");
}

const Instruction* SymbolicRun::next_send(Rank rank) const {
  const auto& sends = program(rank).sends;
  return at(rank).sends < sends.size() ? &sends[at(rank).sends] : nullptr;
}

const Instruction* SymbolicRun::next_receive(Rank rank) const {
  const auto& receives = program(rank).receives;
  return at(rank).receives < receives.size() ? &receives[at(rank).receives] : nullptr;
}

const Instruction* SymbolicRun::next(Cursor cursor) const {
  return cursor.list == List::sends ? next_send(cursor.rank) : next_receive(cursor.rank);
}

bool SymbolicRun::ready(Cursor cursor) const {
  const Instruction* instruction = next(cursor);
  const State& state = at(cursor.rank);
  if (instruction == nullptr) return false;
  if (cursor.list == List::receives) return instruction->after <= state.sends;
  return instruction->after <= state.receives && (state.held.empty() || state.held[state.sends] <= state.receives);
}

void SymbolicRun::check_all_done() const {
  for (Rank rank = 0; rank < schedule_.world; ++rank)
    for (const List list : {List::receives, List::sends}) {
      if (next({rank, list}) == nullptr) continue;
      // Who waits for whom, until somebody who has nothing to do any more, or a circle.
      std::vector<Cursor> path{{rank, list}};
      for (;;) {
        const Cursor cursor = waits_for(path.back());
        if (next(cursor) == nullptr)
          fault(path.back().rank, *next(path.back()),
                fmt::format("never comes about: rank {} has no such {} left", cursor.rank,
                            cursor.list == List::sends ? "send" : "receive"));
        const auto seen = std::find(path.begin(), path.end(), cursor);
        if (seen == path.end()) {
          path.push_back(cursor);
          continue;
        }
        std::string circle;
        for (auto each = seen; each != path.end() && each != seen + 8; ++each)
          circle += (each == seen ? "" : "; ") + describe_wait(*each);
        throw Error(ErrorKind::internal, "deadlock: " + circle);
      }
    }
  for (const auto& [key, messages] : buffered_)
    if (!messages.empty()) fault(static_cast<Rank>(key >> 32), *messages.front().send, "is never received");
}

SymbolicRun::Cursor SymbolicRun::waits_for(Cursor cursor) const {
  const bool sends = cursor.list == List::sends;
  const List other = sends ? List::receives : List::sends;
  return {ready(cursor) ? next(cursor)->peer : cursor.rank, other};
}

std::string SymbolicRun::describe_wait(Cursor cursor) const {
  const Cursor on = waits_for(cursor);
  return fmt::format("{} and waits for rank {} to {}", name(cursor.rank, *next(cursor)), on.rank,
                     on.list == List::sends ? "send" : "receive");
}

std::span<SymbolicRun::Cell> SymbolicRun::cells(Rank rank, Buffer buffer, std::size_t offset, std::size_t bytes) {
  State& state = at(rank);
  std::vector<Cell>& memory = buffer == Buffer::scratch ? state.scratch : state.user;
  const std::size_t base = buffer == Buffer::input ? state.input_at : buffer == Buffer::output ? state.output_at : 0;
  return std::span(memory).subspan(base + offset / element, bytes / element);
}

std::string SymbolicRun::name(Rank rank, Buffer buffer, std::size_t offset) const {
  if (buffer == Buffer::scratch) return fmt::format("scratch byte {}", offset);
  const Layout& layout = layouts_[static_cast<std::size_t>(rank)];
  const auto& extents = buffer == Buffer::input ? layout.input : layout.output;
  std::size_t chunk = 0;
  while (chunk + 1 < extents.size() && offset >= extents[chunk].offset + extents[chunk].bytes) ++chunk;
  return fmt::format("{} chunk {}", buffer == Buffer::input ? "input" : "output", chunk);
}

std::string SymbolicRun::name(Rank rank, const Instruction& instruction) const {
  const bool sends = instruction.action == Action::send;
  const std::string what =
      sends ? name(rank, instruction.from_buffer, instruction.from) : name(rank, instruction.to_buffer, instruction.to);
  const std::string whom =
      instruction.peer < 0 ? "" : fmt::format(" {} rank {}", sends ? "to" : "from", instruction.peer);
  return fmt::format("rank {} {} {}{} in round {}", rank, verb(instruction.action), what, whom, instruction.round);
}

void SymbolicRun::fault(Rank rank, const Instruction& instruction, const std::string& what) const {
  throw Error(ErrorKind::internal, fmt::format("{}, which {}", name(rank, instruction), what));
}

SymbolicRun::Link& SymbolicRun::buffered(Rank from, Rank to) {
  return buffered_[std::uint64_t{static_cast<std::uint32_t>(from)} << 32 | static_cast<std::uint32_t>(to)];
}

}  // namespace ranvier::schedule_detail
