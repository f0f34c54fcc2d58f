#include "engine/call_history.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/request.h"

namespace ranvier::engine {
namespace {

// Of CallStamp::kind; the root has the bits above.
constexpr unsigned dtype_shift = 8, op_shift = 12, urgency_shift = 16, element_shift = 18, shape_shift = 26,
                   root_shift = 42;
static_assert(all_dtypes.size() <= 16 && all_reduce_ops.size() <= 16);
constexpr std::uint32_t most_named = 3;
static_assert(urgent_lanes < 4, "a class has two bits in a stamp's kind");

constexpr bool is_exchange(Collective collective) {
  return collective == Collective::all_to_all || collective == Collective::neighbor_exchange;
}

}  // namespace

CallStamp CallStamp::of(const MessageHeader& header, std::uint32_t dims) {
  CallStamp stamp;
  stamp.kind =
      (static_cast<std::uint64_t>(header.collective) + 1) | static_cast<std::uint64_t>(header.dtype) << dtype_shift |
      static_cast<std::uint64_t>(header.op) << op_shift | static_cast<std::uint64_t>(header.urgency) << urgency_shift |
      static_cast<std::uint64_t>(header.label.element) << element_shift |
      static_cast<std::uint64_t>(has_root(header.collective) ? header.root_or_dims : 0) << root_shift;
  // Of an exchange each rank has sizes and shapes of its own, as of a call that is made of others.
  if (!is_exchange(header.collective) && !is_composite(header.collective)) {
    stamp.kind |= static_cast<std::uint64_t>(header.label.shape) << shape_shift;
    stamp.size = header.size;
  }
  const std::uint64_t way = has_root(header.collective) ? std::uint64_t{header.algorithm} << 32 | dims : 0;
  std::uint64_t mixed = stamp.kind;
  for (const std::uint64_t word : {stamp.size, way}) {
    mixed = (mixed ^ word) * 0x9E3779B97F4A7C15u;
    mixed ^= mixed >> 29;
  }
  stamp.fingerprint = static_cast<std::uint32_t>(mixed >> 32);
  return stamp;
}

CallLabel CallClaim::label() const {
  return {.element = static_cast<std::uint8_t>(kind >> element_shift),
          .shape = static_cast<std::uint16_t>(kind >> shape_shift)};
}

std::string CallClaim::last_call(const RankNames& rank) const {
  if (count == 0 || count == first_of_meeting) return "nothing yet";
  if (kind == 0) return "call " + call_number(count - 1);
  const auto collective = static_cast<Collective>((kind & 0xFF) - 1);
  std::string call = fmt::format("{} {}", call_name(collective), call_number(count - 1));
  if (is_composite(collective)) return call;
  std::vector<std::string> numbers;
  if (collective != Collective::barrier) {
    call += fmt::format("{} of {}", is_agreement(label()) ? agreement_words : "",
                        vector_words(collective, static_cast<DType>(kind >> dtype_shift & 15),
                                     static_cast<ReduceOp>(kind >> op_shift & 15)));
    if (size > 0) numbers.push_back(element_count(size) + (has_common_count(collective) ? "" : " of each rank"));
  }
  if (has_root(collective)) numbers.push_back("root " + rank.number(static_cast<Rank>(kind >> root_shift)));
  if (const auto urgency = kind >> urgency_shift & 3; urgency > 0)
    numbers.push_back(fmt::format("priority {}", urgency));
  return fmt::format("{}{}{}", call, numbers.empty() ? "" : " with ", fmt::join(numbers, ", "));
}

void CallHistory::restart(std::uint32_t count) {
  past_.store(std::uint64_t{count} << 32, std::memory_order_relaxed);
  std::ranges::fill(alike_, 0);
}

CallHistory::Verdict CallHistory::compare(std::uint32_t count, std::uint32_t digest) const {
  const Point current = now();
  std::uint32_t own = current.digest;
  if (count != current.count) {
    const Point then = point(places_[count % capacity].point.load(std::memory_order_acquire));
    if (then.count != count) return Verdict::unknown;
    own = then.digest;
  }
  return own == digest ? Verdict::alike : Verdict::different;
}

// Empty where the place is being written or has been overwritten.
std::optional<CallClaim> CallHistory::claim_at(std::uint32_t count) const {
  const Place& place = places_[count % capacity];
  const std::uint64_t before = place.point.load(std::memory_order_acquire);
  const CallClaim claim{.count = point(before).count,
                        .digest = point(before).digest,
                        .kind = place.kind.load(std::memory_order_acquire),
                        .size = place.size.load(std::memory_order_acquire)};
  if (claim.count != count || place.point.load(std::memory_order_relaxed) != before) return std::nullopt;
  return claim;
}

CallClaim CallHistory::claim() const {
  const Point current = now();
  return claim_at(current.count).value_or(CallClaim{.count = current.count, .digest = current.digest});
}

Error CallHistory::divergence(Rank self, Rank peer, const CallClaim& theirs, std::uint32_t alike,
                              const std::string& others) const {
  const auto ours = claim_at(theirs.count);
  const bool is_known = ours && theirs.kind != 0;
  if (is_known && (ours->kind != theirs.kind || ours->size != theirs.size))
    return {ErrorKind::mismatch,
            fmt::format("the ranks disagree: {} called {}, and {} called {}{}; {}", names_.rank(self),
                        ours->last_call(names_.rank), names_.rank(peer), theirs.last_call(names_.rank),
                        label_difference(self, ours->label(), peer, theirs.label(), names_), advice),
            peer};
  // Nothing else is left of a stamp.
  if (is_known && alike + 1 == theirs.count)
    return {ErrorKind::mismatch,
            fmt::format("the ranks disagree: {} and {} called {} by different algorithms or dims; every rank must name "
                        "the same, or none",
                        names_.rank(self), names_.rank(peer), theirs.last_call(names_.rank)),
            peer};
  return {
      ErrorKind::mismatch,
      fmt::format("the ranks disagree: {} and {} have called different collectives up to {}: {}; {}", names_.rank(self),
                  names_.rank(peer), theirs.last_call(names_.rank), since(self, alike, others), advice),
      peer};
}

std::string CallHistory::since(Rank self, std::uint32_t alike, const std::string& others) const {
  if (alike > now().count || alike == first_of_meeting) alike = 0;  // while the ranks met, or before
  return fmt::format("{}{}{}", alike == 0 ? "" : fmt::format("they agree up to {}, and ", call_number(alike - 1)),
                     last_calls(self, alike), others.empty() ? "" : ", and " + others);
}

std::string CallHistory::last_calls(Rank self, std::uint32_t alike) const {
  const std::uint32_t count = now().count;
  if (alike > count || alike == first_of_meeting) alike = 0;
  std::string calls;
  for (std::uint32_t left = std::min(count - alike, most_named); left > 0; --left)
    if (const auto claim = claim_at(count - left + 1))
      calls += (calls.empty() ? "" : ", ") + claim->last_call(names_.rank);
  return fmt::format("the last calls of {} are {}", names_.rank(self), calls.empty() ? "in its flight record" : calls);
}

}  // namespace ranvier::engine
