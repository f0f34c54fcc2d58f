#include "engine/collective.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/ticks.h"
#include "engine/engine.h"
#include "engine/request.h"
#include "ranvier/error.h"

namespace ranvier::engine {
namespace {

std::size_t bytes_with(const std::vector<std::pair<Rank, std::size_t>>& links, Rank peer) {
  for (const auto& [rank, bytes] : links)
    if (rank == peer) return bytes;
  return 0;
}

// The bytes of a link. Along a periodic dimension of two it carries two parts, in two rounds, and the ranks must agree
// about each: the later one counts for more, so that parts of up to 4 GiB in another order give another number.
std::uint64_t size_on_link(const Program& program, Rank peer, bool sending, Collective collective) {
  const std::uint64_t bytes = bytes_with(sending ? program.bytes_to : program.bytes_from, peer);
  if (collective != Collective::neighbor_exchange) return bytes;
  bool has_first = false;
  std::uint64_t second = 0;
  for (const Instruction& each : sending ? program.sends : program.receives) {
    if (each.peer != peer) continue;
    has_first = has_first || each.round == 0;
    if (each.round > 0) second += each.bytes;
  }
  return has_first ? bytes + (second << 32) : bytes;
}

}  // namespace

void CollectiveOperation::reset(CollectiveCall call) {
  call_ = std::move(call);
  bytes_to_send = call_.bytes_to_send;
  bytes_to_receive = call_.bytes_to_receive;
  priority = call_.priority;
  accepted_.resize(call_.lender != nullptr ? call_.program->bytes_to.size() : 0);
  rewind();
}

void CollectiveOperation::restart(std::byte* input, std::byte* output, const Ticket& ticket) {
  call_.set_memory(input, output);
  call_.set_ticket(ticket);
  rewind();
}

void CollectiveOperation::rewind() {
  next_send_ = send_offset_ = sends_done_ = next_receive_ = receive_offset_ = 0;
  head_sent_ = head_received_ = false;
  lender_ = call_.lender;
  began_ = 0;
  std::ranges::fill(accepted_, 0);
  finished_.store(false, std::memory_order_relaxed);
  if (error_) error_ = nullptr;
}

FlightRecorder::Entry CollectiveOperation::entry() const {
  return {.sequence = call_.header.sequence,
          .collective = call_.header.collective,
          .dtype = call_.header.dtype,
          .op = call_.header.op,
          .bytes = call_.count * call_.element_bytes};
}

Progress CollectiveOperation::advance(Transport& transport, bool briefly) {
  const Program& program = *call_.program;
  if (call_.lending != nullptr && began_ == 0) begin_lending();
  bool moved = false;
  for (int steps = 1;; ++steps) {
    const bool pushed = push(transport);
    const bool pulled = pull(transport);
    if (next_receive_ == program.receives.size() && sends_done_ == program.sends.size()) {
      if (call_.lending != nullptr) end_lending();
      return Progress::done;
    }
    if (!pushed && !pulled) return moved ? Progress::moved : Progress::blocked;
    if (briefly || steps == most_steps) return Progress::moved;
    moved = true;
  }
}

void CollectiveOperation::begin_lending() {
  began_ = ticks();
  lender_ = call_.lending->begin() ? call_.lender : nullptr;
}

void CollectiveOperation::end_lending() { call_.lending->took(lender_ != nullptr, ticks() - began_); }

// At most one instruction at a time in either direction: sending and receiving alternate slice by slice, so that both
// directions of a link stay busy and a slice is still in cache when it is passed on.
bool CollectiveOperation::push(Transport& transport) {
  const auto& sends = call_.program->sends;
  bool moved = false;
  if (next_send_ < sends.size() && sends[next_send_].after <= next_receive_) {
    const Instruction& send = sends[next_send_];
    MessageHeader header;
    const ConstBytes head = head_of(send, header);
    const ConstBytes body{at(send.from_buffer, send.from) + send_offset_, send.bytes - send_offset_};
    const auto offer = [&] {
      const bool asks = send.answer != 0 && call_.answers != nullptr && send_offset_ == 0;
      if (lender_ != nullptr) return lender_->try_lend(send.peer, call_.ticket.lane, head, body, asks);
      if (asks) return call_.answers->try_ask(send.peer, call_.ticket.lane, head, body);
      return transport.try_send(send.peer, call_.ticket.lane, head, body);
    };
    std::size_t accepted = offer();
    if (accepted > 0) {
      moved = true;
      if (!head.empty()) {
        head_sent_ = true;
        accepted -= head.size();
      }
      send_offset_ += accepted;
      if (lender_ != nullptr) accepted_[send.link] += accepted;
      if (send_offset_ == send.bytes) {
        ++next_send_;
        send_offset_ = 0;
        head_sent_ = false;
      }
    }
  }
  while (sends_done_ < next_send_ && is_sent(transport, sends[sends_done_])) {
    ++sends_done_;
    moved = true;
  }
  return moved;
}

// A lender tells how much from the end of a link is lent, so that the slices of a long vector come back one by one.
bool CollectiveOperation::is_sent(Transport& transport, const Instruction& send) const {
  if (lender_ == nullptr) return transport.sent(send.peer, call_.ticket.lane);
  return accepted_[send.link] - send.link_end >= lender_->lent(send.peer, call_.ticket.lane);
}

bool CollectiveOperation::pull(Transport& transport) {
  const auto& receives = call_.program->receives;
  if (next_receive_ == receives.size() || receives[next_receive_].after > sends_done_) return false;
  const Instruction& step = receives[next_receive_];
  if (step.action == Action::copy) {
    std::memcpy(at(step.to_buffer, step.to), at(step.from_buffer, step.from), step.bytes);
  } else if (step.action == Action::reduce) {
    std::byte* to = at(step.to_buffer, step.to);
    call_.reduce(to, to, at(step.from_buffer, step.from), step.bytes / call_.element_bytes,
                 step.completes ? call_.divisor : 0);
  } else {
    bool moved = false;
    while ((step.first_on_link && !head_received_) || receive_offset_ < step.bytes) {
      if (!receive(transport, step)) return moved;
      moved = true;
    }
  }
  ++next_receive_;
  receive_offset_ = 0;
  head_received_ = false;
  return true;
}

// One view's worth of a recv or recv_reduce; whether anything arrived.
bool CollectiveOperation::receive(Transport& transport, const Instruction& step) {
  std::byte* to = at(step.to_buffer, step.to) + receive_offset_;
  const std::size_t wanted = step.bytes - receive_offset_;
  const bool head_due = step.first_on_link && !head_received_;
  const bool direct = step.action == Action::recv && !head_due;
  ConstBytes view = transport.try_recv(step.peer, call_.ticket.lane, direct ? Bytes(to, wanted) : Bytes());
  if (view.empty()) return false;
  if (direct && view.data() == to) {
    receive_offset_ += view.size();
    return true;
  }
  std::size_t used = 0;
  if (head_due) {
    if (view.size() < sizeof(MessageHeader)) return false;  // it grows
    MessageHeader theirs;
    std::memcpy(&theirs, view.data(), sizeof theirs);
    check(theirs, step.peer, transport.rank());
    head_received_ = true;
    used = sizeof theirs;
    view = view.subspan(used);
  }
  std::size_t taken = std::min(view.size(), wanted);
  if (step.action == Action::recv) {
    if (taken > 0) std::memcpy(to, view.data(), taken);
  } else {
    taken -= taken % call_.element_bytes;
    if (taken == step.bytes && step.answer != 0 && answer(transport, step, view)) {
      receive_offset_ = taken;
      return true;
    }
    if (taken > 0)
      call_.reduce(to, at(step.from_buffer, step.from) + receive_offset_, view.data(), taken / call_.element_bytes,
                   step.completes ? call_.divisor : 0);
  }
  receive_offset_ += taken;
  used += taken;
  if (used == 0) return false;
  transport.release(step.peer, call_.ticket.lane, used);
  return true;
}

// Reduces `view` and sends the sum back in its place, once what is to be sent before it has been; whether that can be.
// A piece at a time, so that what was written once is written again from the nearest cache.
bool CollectiveOperation::answer(Transport& transport, const Instruction& receive, ConstBytes view) {
  constexpr std::size_t piece = 4 << 10;
  if (call_.answers == nullptr) return false;
  while (next_send_ + 1 < receive.answer && push(transport)) {
  }
  if (next_send_ + 1 != receive.answer || send_offset_ > 0 || head_sent_) return false;
  const Bytes place = call_.answers->answerable(receive.peer, call_.ticket.lane, view);
  if (place.empty() || place.size() != receive.bytes) return false;
  std::byte* to = at(receive.to_buffer, receive.to);
  const std::byte* own = at(receive.from_buffer, receive.from);
  for (std::size_t done = 0; done < place.size(); done += piece) {
    const std::size_t bytes = std::min(piece, place.size() - done);
    call_.reduce(to + done, own + done, place.data() + done, bytes / call_.element_bytes,
                 receive.completes ? call_.divisor : 0);
    std::memcpy(place.data() + done, to + done, bytes);
  }
  const Instruction& send = call_.program->sends[next_send_];
  MessageHeader header;
  call_.answers->answer(receive.peer, call_.ticket.lane, head_of(send, header), place);
  if (lender_ != nullptr) accepted_[send.link] += send.bytes;
  ++next_send_;
  return true;
}

// What goes in front of the current send: `header`, filled, of the first on its link, else nothing.
ConstBytes CollectiveOperation::head_of(const Instruction& send, MessageHeader& header) const {
  if (!send.first_on_link || head_sent_) return {};
  header = header_for(send.peer, true);
  return std::as_bytes(std::span(&header, 1));
}

MessageHeader CollectiveOperation::header_for(Rank peer, bool sending) const {
  MessageHeader header = call_.header;
  if (call_.size_by_link) header.size = size_on_link(*call_.program, peer, sending, header.collective);
  return header;
}

void CollectiveOperation::check(const MessageHeader& theirs, Rank peer, Rank self) const {
  const MessageHeader ours = header_for(peer, false);
  CallHistory& history = engine->history();
  if (agree(ours, theirs)) return history.found_alike(peer, ours.sequence);
  throw disagreement(
      self, ours, peer, theirs, engine->options().names,
      alike_but_for_history(ours, theirs) ? history.since(self, history.alike(peer), engine->last_calls_of(peer)) : "");
}

std::string CollectiveOperation::describe() const {
  const MessageHeader& header = call_.header;
  std::string call = fmt::format("{} {}", call_name(header.collective), call_number(header.sequence));
  if (header.collective == Collective::barrier || is_composite(header.collective)) return call;
  // Parts of different sizes have no count in common.
  const std::string amount = call_.size_by_link && call_.count == 0
                                 ? fmt::format("{}, {} B to send, {} B to receive", name_of(header.dtype),
                                               call_.bytes_to_send, call_.bytes_to_receive)
                                 : fmt::format("{} x {}", name_of(header.dtype), call_.count);
  const std::string op = reduces(header.collective) ? fmt::format(", {}", name_of(header.op)) : "";
  return fmt::format("{} ({}{}){}", call, amount, op, is_agreement(header.label) ? agreement_words : "");
}

std::optional<Expected> CollectiveOperation::expects() const {
  const auto& receives = call_.program->receives;
  if (next_receive_ == receives.size()) return Expected{};
  const Instruction& step = receives[next_receive_];
  if (step.peer < 0 || step.after > sends_done_) return Expected{};
  // Where rounds are ahead of one another, what has been sent lasts until some more have come: a part of that, so that
  // all others who wait as well leave enough.
  std::size_t bytes = step.bytes - receive_offset_;
  for (std::size_t i = next_receive_ + 1; i < receives.size() && bytes < call_.program->ahead_bytes / 8; ++i) {
    if (receives[i].peer != step.peer || receives[i].after > sends_done_) break;
    bytes += receives[i].bytes;
  }
  return Expected{step.peer, call_.ticket.lane, bytes};
}

Rank CollectiveOperation::waits_for() const {
  const auto& sends = call_.program->sends;
  const auto& receives = call_.program->receives;
  if (next_receive_ < receives.size() && receives[next_receive_].after <= sends_done_)
    return receives[next_receive_].peer;
  if (sends_done_ < sends.size()) return sends[sends_done_].peer;
  return -1;
}

}  // namespace ranvier::engine
