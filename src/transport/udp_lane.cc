#include "transport/udp_lane.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "ranvier/error.h"

namespace ranvier::transport {

// ---- Sending.

std::size_t UdpSendLane::try_send(ConstBytes head, ConstBytes body) {
  const std::size_t room = this->room();
  if (room < head.size() || room < std::min(head.size() + body.size(), worth_a_call())) {
    refused_ = true;
    return 0;
  }
  if (!memory_) memory_ = MirroredMemory(bytes_);
  // An empty ring begins at its beginning again: those bytes are in the caches.
  if (acknowledged_ == accepted_) base_ = accepted_;
  const std::size_t from_body = std::min(body.size(), room - head.size());
  std::byte* const place = memory_.at(accepted_ - base_);
  if (!head.empty()) std::memcpy(place, head.data(), head.size());
  if (from_body > 0) std::memcpy(place + head.size(), body.data(), from_body);
  accepted_ += head.size() + from_body;
  if (from_body < body.size()) refused_ = true;
  return head.size() + from_body;
}

UdpSendLane::Piece UdpSendLane::next(std::size_t most) const {
  if (!again_.empty()) {
    const NumberRange range = again_.first();
    const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(most, range.size()));
    return {range.begin, {memory_.at(range.begin - base_), bytes}, true};
  }
  if (sent_ >= credit()) return {};
  const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(most, credit() - sent_));
  return {sent_, {memory_.at(sent_ - base_), bytes}, false};
}

void UdpSendLane::sent(const Piece& piece) {
  const NumberRange range{piece.offset, piece.offset + piece.bytes.size()};
  if (piece.again)
    again_.remove(range);
  else
    sent_ = range.end;
}

void UdpSendLane::acknowledged(NumberRange range) {
  range.begin = std::max(range.begin, acknowledged_);
  if (range.empty()) return;
  again_.remove(range);
  if (range.begin == acknowledged_ && arrived_.empty()) {
    acknowledged_ = range.end;
    return;
  }
  arrived_.add(range);
  if (arrived_.first().begin > acknowledged_) return;
  acknowledged_ = arrived_.first().end;
  arrived_.remove_below(acknowledged_);
}

void UdpSendLane::lost(NumberRange range) {
  range.begin = std::max(range.begin, acknowledged_);
  if (range.empty()) return;
  again_.add(range);
  for (const NumberRange& arrived : arrived_.all()) {
    if (arrived.begin >= range.end) break;
    again_.remove(arrived);
  }
}

bool UdpSendLane::set_limit(std::uint64_t limit) {
  if (limit > sent_ + peer_bytes_) return false;  // it would have used what was never sent
  limit_ = std::max(limit_, limit);
  return true;
}

bool UdpSendLane::has_room_again() { return room() >= worth_a_call() && std::exchange(refused_, false); }

// ---- Receiving.

bool UdpReceiveLane::arrived(std::uint64_t offset, ConstBytes bytes) {
  const std::uint64_t end = offset + bytes.size();
  if (end < offset || end > limit()) return false;
  if (end <= ready_) return true;
  if (!memory_) memory_ = MirroredMemory(bytes_);
  if (released_ == ready_ && beyond_.empty()) base_ = ready_;  // see try_send
  const std::size_t known = offset < ready_ ? static_cast<std::size_t>(ready_ - offset) : 0;
  const NumberRange range{offset + known, end};
  // Bytes that have arrived before are written again as they are; nobody reads beyond ready_.
  std::memcpy(memory_.at(range.begin - base_), bytes.data() + known, bytes.size() - known);
  if (beyond_.empty() && range.begin == ready_) {
    ready_ = range.end;
    return true;
  }
  beyond_.add(range);
  if (beyond_.first().begin > ready_) return true;
  ready_ = beyond_.first().end;
  beyond_.remove_below(ready_);
  return true;
}

ConstBytes UdpReceiveLane::view() const {
  if (ready() == 0) return {};
  return {memory_.at(released_ - base_), ready()};
}

std::size_t UdpReceiveLane::missing(std::size_t bytes) const {
  const NumberRange awaited{ready_, released_ + bytes};
  if (awaited.empty()) return 0;
  std::uint64_t missing = awaited.size();
  for (const NumberRange& arrived : beyond_.all()) {
    if (arrived.begin >= awaited.end) break;
    missing -= std::min(arrived.end, awaited.end) - arrived.begin;
  }
  return static_cast<std::size_t>(missing);
}

void UdpReceiveLane::release(std::size_t bytes) {
  if (bytes > ready())
    throw Error(ErrorKind::internal,
                fmt::format("udp: {} B of a view of {} B were released; please report this", bytes, ready()));
  released_ += bytes;
}

}  // namespace ranvier::transport
