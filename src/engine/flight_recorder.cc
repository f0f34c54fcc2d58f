#include "engine/flight_recorder.h"

#include <fmt/format.h>

#include <mutex>

namespace ranvier::engine {

std::uint64_t FlightRecorder::start(const Entry& entry) {
  const std::lock_guard guard(lock_);
  Entry& place = entries_[next_ % capacity];
  place = entry;
  place.state = Entry::State::running;
  place.started = ticks();
  return next_++;
}

void FlightRecorder::end(std::uint64_t place, bool failed) {
  const std::lock_guard guard(lock_);
  if (place + capacity < next_) return;  // overwritten meanwhile
  Entry& entry = entries_[place % capacity];
  entry.state = failed ? Entry::State::failed : Entry::State::done;
  entry.ended = ticks();
}

std::string FlightRecorder::dump(std::size_t most) const {
  std::array<Entry, capacity> entries;
  std::uint64_t next = 0;
  {
    const std::lock_guard guard(lock_);
    entries = entries_;
    next = next_;
  }
  std::string text;
  const std::uint64_t kept = std::min(next, std::uint64_t{std::min(capacity, most)});
  for (std::uint64_t i = next - kept; i < next; ++i) {
    const Entry& entry = entries[i % capacity];
    const double started_ms = scale_.nanoseconds_at(entry.started) / 1e6;
    const auto peer = entry.peer >= 0 ? fmt::format(" with rank {}", entry.peer) : std::string();
    text += fmt::format("#{} {}{} {} {} {} B at {:.3f} ms: ", entry.sequence, name_of(entry.collective), peer,
                        name_of(entry.dtype), name_of(entry.op), entry.bytes, started_ms);
    if (entry.state == Entry::State::running)
      text += "still running\n";
    else
      text += fmt::format("{} after {:.3f} ms\n", entry.state == Entry::State::done ? "done" : "failed",
                          scale_.nanoseconds_at(entry.ended) / 1e6 - started_ms);
  }
  return text;
}

}  // namespace ranvier::engine
