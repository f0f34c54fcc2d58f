#include "transport/udp_partial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "ranvier/error.h"

namespace ranvier::transport {
namespace {

constexpr std::size_t piece_bytes = PartialMessages::piece_bytes;

NumberRange bytes_of(PartialMessages::Pieces pieces, ConstBytes message) {
  const std::size_t begin = pieces.first * piece_bytes;
  return {begin, std::min(begin + pieces.count * piece_bytes, message.size())};
}

// Of a packet's payload, within its message.
NumberRange range_of(std::uint64_t place, std::size_t bytes) {
  const std::uint64_t begin = (place & 0xffffffff) * piece_bytes;
  return {begin, begin + bytes};
}

}  // namespace

// ---- Sending.

void UdpPartialSends::withdraw(std::uint64_t ticket) {
  std::erase_if(messages_, [&](const Message& message) { return message.ticket == ticket; });
}

void UdpPartialSends::withdraw_lent() {
  std::erase_if(messages_, [&](const Message& message) { return !wholes_.contains(message.ticket); });
}

void UdpPartialSends::insert(Messages::const_iterator behind, const Message& message) {
  if (behind != messages_.begin()) {
    Message& before = messages_[static_cast<std::size_t>(behind - messages_.begin()) - 1];
    if (before.ticket == message.ticket && before.end == message.left) {
      before.end = message.end;
      return;
    }
  }
  messages_.insert(behind, message);
}

void UdpPartialSends::add(std::uint64_t ticket, ConstBytes message, Pieces pieces) {
  newest_ = std::max(newest_, ticket);
  const auto [begin, end] = bytes_of(pieces, message);
  // Of a message that has begun nothing is put behind others, though all that was added of it has left.
  const auto last = std::ranges::find(messages_.rbegin(), messages_.rend(), ticket, &Message::ticket);
  const auto behind = last != messages_.rend() ? last.base() : begin > 0 ? messages_.begin() : messages_.end();
  insert(behind, {ticket, message, begin, end});
}

void UdpPartialSends::add_whole(std::uint64_t ticket, ConstBytes message, std::shared_ptr<const void> memory,
                                Pieces pieces) {
  newest_ = std::max(newest_, ticket);
  const auto [begin, end] = bytes_of(pieces, message);
  Whole& whole = wholes_.try_emplace(ticket, Whole{message, std::move(memory), 0, {}, {}}).first->second;
  whole.given += end - begin;
  // In front of later messages that have not begun to leave: it ends something, and those begin something. What has
  // begun goes on, for a pause would look like its end, and so does what is before it: that it comes tells that those
  // have left.
  const auto behind = std::ranges::find_if(messages_, [&](const Message& each) {
    return each.left == 0 && each.ticket > ticket && !wholes_.contains(each.ticket);
  });
  insert(behind, {ticket, message, begin, end});
}

std::size_t UdpPartialSends::unacknowledged() const {
  std::size_t bytes = 0;
  for (const auto& [ticket, whole] : wholes_) {
    bytes += whole.given;
    for (const NumberRange& range : whole.acknowledged.all()) bytes -= range.size();
  }
  return bytes;
}

UdpPartialSends::Piece UdpPartialSends::next(std::size_t most) const {
  // Whole pieces, or else what is left, so that what is lost can be counted in pieces.
  const auto piece = [most](std::uint64_t ticket, ConstBytes message, std::size_t begin, std::size_t end, bool again) {
    const std::size_t rest = end - begin;
    const std::size_t whole = std::max(most - most % piece_bytes, piece_bytes);
    return Piece{ticket << 32 | begin / piece_bytes,
                 message.subspan(begin, rest <= most ? rest : std::min(rest, whole)), again};
  };
  if (const auto lost = next_again(); lost != wholes_.end()) {
    const auto& [ticket, whole] = *lost;
    return piece(ticket, whole.bytes, whole.again.first().begin, whole.again.first().end, true);
  }
  const Message& message = *next_message();
  return piece(message.ticket, message.bytes, message.left, message.left + allowed(message), false);
}

std::size_t UdpPartialSends::allowed(const Message& message) const {
  const std::size_t rest = message.end - message.left;
  if (message.ticket < asked_below_) return rest;
  if (!early_.contains(message.ticket) && early_.size() >= credit_.messages) return 0;
  const std::size_t room = credit_.bytes - std::min(credit_.bytes, early_bytes_);
  return rest <= room ? rest : room - room % piece_bytes;
}

UdpPartialSends::Messages::const_iterator UdpPartialSends::next_message() const {
  return std::ranges::find_if(messages_, [&](const Message& message) { return allowed(message) > 0; });
}

UdpPartialSends::Wholes::const_iterator UdpPartialSends::next_again() const {
  return std::ranges::find_if(wholes_, [](const auto& each) { return !each.second.again.empty(); });
}

void UdpPartialSends::asked_below(std::uint32_t lower) {
  const std::uint64_t ticket = whole_ticket(lower, asked_below_);
  if (ticket <= asked_below_) return;
  asked_below_ = ticket;
  while (!early_.empty() && early_.begin()->first < ticket) {
    early_bytes_ -= early_.begin()->second;
    early_.erase(early_.begin());
  }
}

void UdpPartialSends::sent(const Piece& piece) {
  const std::uint64_t ticket = ticket_at(piece.place);
  const NumberRange range = range_of(piece.place, piece.bytes.size());
  if (piece.again) return wholes_.at(ticket).again.remove(range);
  const auto message = std::ranges::find_if(
      messages_, [&](const Message& each) { return each.ticket == ticket && each.left == range.begin; });
  message->left += piece.bytes.size();
  if (message->left == message->end) messages_.erase(message);
  if (ticket < asked_below_) return;
  early_[ticket] += piece.bytes.size();
  early_bytes_ += piece.bytes.size();
}

void UdpPartialSends::acknowledged(std::uint64_t place, std::size_t bytes) {
  const auto found = wholes_.find(ticket_at(place));
  if (found == wholes_.end()) return;
  Whole& whole = found->second;
  whole.acknowledged.add(range_of(place, bytes));
  whole.again.remove(range_of(place, bytes));  // it was late and not lost
  if (whole.acknowledged.first() == NumberRange{0, whole.bytes.size()}) wholes_.erase(found);
}

void UdpPartialSends::lost(std::uint64_t place, std::size_t bytes) {
  const auto found = wholes_.find(ticket_at(place));
  if (found == wholes_.end()) return;
  Whole& whole = found->second;
  whole.again.add(range_of(place, bytes));
  for (const NumberRange& arrived : whole.acknowledged.all()) whole.again.remove(arrived);
}

// ---- Receiving.

void UdpPartialReceives::size(Incoming& incoming, std::size_t bytes) {
  Message& message = incoming.message;
  if (message.bytes.empty() && !free_.empty()) {
    message = std::move(free_.back());
    free_.pop_back();
    message.arrived.clear();
    message.pieces = 0;
  }
  if (message.bytes.size() < bytes) message.bytes.resize(bytes);
  message.arrived.resize(PartialMessages::pieces_of(bytes));
}

UdpPartialReceives::Incoming* UdpPartialReceives::open(std::uint64_t ticket) {
  if (const auto found = incoming_.find(ticket); found != incoming_.end()) return &found->second;
  return taken_.contains(ticket) ? nullptr : &incoming_[ticket];
}

UdpPartialReceives::Piece UdpPartialReceives::arrived(Time now, std::uint64_t place, ConstBytes payload) {
  const std::uint64_t ticket = whole_ticket(place >> 32, asked_.empty() ? 0 : asked_.all().back().end);
  const std::size_t first = place & 0xffffffff;
  const std::size_t end = first * piece_bytes + payload.size();
  const bool known = incoming_.contains(ticket);
  if (payload.empty() || (!known && early_messages_ == credit_.messages)) return Piece::refused;
  Incoming* const incoming = open(ticket);
  if (incoming == nullptr) return Piece::useless;
  if (!known) ++early_messages_;
  // A piece that is not whole can only be the last one.
  const bool is_short = payload.size() % piece_bytes != 0;
  if (incoming->bytes == 0) {
    if (is_short ? end < incoming->end : incoming->end % piece_bytes != 0 && end > incoming->end) return Piece::refused;
    const std::size_t more = end - std::min(end, incoming->end);
    if (early_bytes_ + more > credit_.bytes) return Piece::refused;
    early_bytes_ += more;
    size(*incoming, std::max(end, incoming->end));
  } else if (!incoming->fits() || end > incoming->bytes || (is_short && end != incoming->bytes)) {
    return Piece::refused;
  } else {
    size(*incoming, incoming->bytes);
  }
  Message& message = incoming->message;
  bool any = false;
  for (std::size_t piece = first; piece < PartialMessages::pieces_of(end); ++piece) {
    if (std::exchange(message.arrived[piece], std::uint8_t{1}) != 0) continue;  // somebody may be reading it
    const ConstBytes bytes = payload.subspan((piece - first) * piece_bytes);
    std::memcpy(message.bytes.data() + piece * piece_bytes, bytes.data(), std::min(bytes.size(), piece_bytes));
    ++message.pieces;
    any = true;
  }
  if (!any) return Piece::useless;
  incoming->end = std::max(incoming->end, end);
  if (incoming->first_at == Time{}) incoming->first_at = now;
  incoming->newest_at = now;
  return Piece::news;
}

UdpPartialReceives::Incoming* UdpPartialReceives::ask(std::uint64_t ticket, std::size_t bytes, Time now) {
  const bool early = incoming_.contains(ticket);
  Incoming* const incoming = open(ticket);
  if (incoming == nullptr || incoming->bytes != 0) return incoming;
  asked_.add({ticket, ticket + 1});
  if (early) {
    if (may_hold_up() && now > incoming->newest_at) incoming->first_at = incoming->newest_at = now;
    --early_messages_;
    early_bytes_ -= incoming->end;
  }
  incoming->bytes = bytes;
  return incoming;
}

UdpPartialReceives::Incoming& UdpPartialReceives::expected(std::uint64_t ticket, std::size_t bytes) {
  Incoming* const incoming = ask(ticket, bytes);
  if (incoming == nullptr)
    throw Error(ErrorKind::internal, fmt::format("udp: message {} was taken already; please report this", ticket));
  if (!incoming->fits())
    throw Error(ErrorKind::mismatch,
                fmt::format("udp: message {} has {} B or more where {} B are due; every rank must call the same "
                            "collectives in the same order with the same sizes and types",
                            ticket, incoming->end, bytes));
  size(*incoming, bytes);
  return *incoming;
}

std::uint64_t UdpPartialReceives::asked_below() const {
  return asked_.empty() || asked_.first().begin > 0 ? 0 : asked_.first().end;
}

PartialMessages::Arrival UdpPartialReceives::arrival(std::uint64_t ticket, std::size_t bytes) {
  const Incoming& incoming = expected(ticket, bytes);
  return {.pieces = incoming.message.pieces,
          .first_at = incoming.first_at,
          .newest_at = incoming.newest_at,
          .end = PartialMessages::pieces_of(incoming.end),
          .last_is_here = incoming.message.arrived.back() != 0};
}

PartialMessages::Message UdpPartialReceives::take(std::uint64_t ticket, std::size_t bytes) {
  Message message = std::move(expected(ticket, bytes).message);
  incoming_.erase(ticket);
  taken_.add({ticket, ticket + 1});
  return message;
}

void UdpPartialReceives::give_back(Message message) { free_.push_back(std::move(message)); }

}  // namespace ranvier::transport
