#include "engine/flight_recorder.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/message_header.h"

namespace ranvier::engine {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr unsigned state_shift = 56;

}  // namespace

std::uint64_t FlightRecorder::pack(const Entry& entry) {
  return entry.sequence | static_cast<std::uint64_t>(entry.collective) << 32 |
         static_cast<std::uint64_t>(entry.dtype) << 40 | static_cast<std::uint64_t>(entry.op) << 48 |
         static_cast<std::uint64_t>(entry.state) << state_shift;
}

FlightRecorder::Entry FlightRecorder::unpack(std::uint64_t kind) {
  return {.sequence = static_cast<std::uint32_t>(kind),
          .collective = static_cast<Collective>(kind >> 32 & 0xFF),
          .dtype = static_cast<DType>(kind >> 40 & 0xFF),
          .op = static_cast<ReduceOp>(kind >> 48 & 0xFF),
          .state = static_cast<State>(kind >> state_shift)};
}

std::uint64_t FlightRecorder::start(const Entry& entry) {
  const std::uint64_t number = next_.load(relaxed);
  Place& place = places_[number % capacity];
  place.kind.store(pack(entry), relaxed);
  place.bytes.store(entry.bytes, relaxed);
  place.peer.store(entry.peer, relaxed);
  place.started.store(ticks(), relaxed);
  next_.store(number + 1, relaxed);
  return number;
}

void FlightRecorder::end(std::uint64_t number, bool failed) {
  if (number + capacity < next_.load(relaxed)) return;  // overwritten meanwhile
  Place& place = places_[number % capacity];
  const auto state = static_cast<std::uint64_t>(failed ? State::failed : State::done);
  place.ended.store(ticks(), relaxed);
  place.kind.store((place.kind.load(relaxed) & ((std::uint64_t{1} << state_shift) - 1)) | state << state_shift,
                   relaxed);
}

std::string FlightRecorder::dump(std::size_t most, std::optional<std::uint64_t> failing) const {
  const std::uint64_t next = next_.load(relaxed), kept = std::min(next, std::uint64_t{capacity});
  std::vector<std::uint64_t> shown, met;
  for (std::uint64_t i = next; i-- > next - kept && shown.size() < most;) {
    const Entry entry = unpack(places_[i % capacity].kind.load(relaxed));
    const bool is_told = entry.sequence < first_of_meeting || entry.state != State::done;
    if (is_told || met.size() < most) (is_told ? shown : met).push_back(i);
  }
  if (shown.empty()) shown.swap(met);
  std::string text;
  std::reverse(shown.begin(), shown.end());
  for (const std::uint64_t i : shown) {
    const Place& place = places_[i % capacity];
    const Entry entry = unpack(place.kind.load(relaxed));
    const Rank peer = place.peer.load(relaxed);
    const double started_ms = scale_.nanoseconds_at(place.started.load(relaxed)) / 1e6;
    const bool message = is_message_call(entry.collective);
    text += fmt::format("{}{}{} {} {} B at {:.3f} ms: ", message ? "" : call_number(entry.sequence) + " ",
                        call_name(entry.collective), peer >= 0 ? " with " + rank_(peer) : "",
                        vector_words(entry.collective, entry.dtype, entry.op), place.bytes.load(relaxed), started_ms);
    const bool fails_now = entry.state == State::running && failing == i;
    if (entry.state == State::running && !fails_now)
      text += "still running\n";
    else
      // The scale moves a little from call to call: nothing took less than no time.
      text += fmt::format(
          "{} after {:.3f} ms\n", entry.state == State::done ? "done" : "failed",
          std::max(0.0, scale_.nanoseconds_at(fails_now ? ticks() : place.ended.load(relaxed)) / 1e6 - started_ms));
  }
  return text;
}

std::vector<FlightRecorder::Running> FlightRecorder::running() const {
  std::vector<Running> found;
  const std::uint64_t next = next_.load(relaxed);
  const double now = scale_.nanoseconds_at(ticks());
  for (std::uint64_t i = next - std::min(next, std::uint64_t{capacity}); i < next; ++i) {
    const Place& place = places_[i % capacity];
    Entry entry = unpack(place.kind.load(relaxed));
    if (entry.state != State::running) continue;
    entry.bytes = place.bytes.load(relaxed);
    entry.peer = place.peer.load(relaxed);
    const double seconds = (now - scale_.nanoseconds_at(place.started.load(relaxed))) / 1e9;
    found.push_back({entry, seconds, name_of_call(entry)});
  }
  return found;
}

std::optional<bool> FlightRecorder::has_ended(std::uint32_t sequence) const {
  for (const Place& place : places_) {
    const Entry entry = unpack(place.kind.load(relaxed));
    const bool is_used = place.started.load(relaxed) != 0;
    if (is_used && !is_message_call(entry.collective) && entry.sequence == sequence)
      return entry.state != State::running;
  }
  return std::nullopt;
}

std::string FlightRecorder::name_of_call(const Entry& entry) const {
  if (!is_message_call(entry.collective))
    return fmt::format("{} {}", call_name(entry.collective), call_number(entry.sequence));
  return fmt::format("{} of {} B {} {}", call_name(entry.collective), entry.bytes,
                     entry.collective == Collective::send ? "to" : "from",
                     entry.peer < 0 ? "any rank" : rank_(entry.peer));
}

}  // namespace ranvier::engine
