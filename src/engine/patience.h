// When a receiver stops waiting for the rest of a message that is sent once.
//
//  - Enough has come: no more than the allowed share is missing, and its last piece is here. Where that was lost, it is
//    waited for no longer than for one that the path delays; what is still coming would be lost for nothing.
//  - Nothing more comes: its last piece is here, and the others are later than the path ever reorders.
//  - It is late and silent: it takes longer than the last rounds usually took (by default their median) and a quarter
//    more (the adaptive timeout of OptiReduce, NSDI 2025), and nothing of it has come for a while. A path that only
//    became slower still brings it all.
//
// Pure.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "ranvier/transport.h"

namespace ranvier::engine {

class Patience {
 public:
  using Arrival = PartialMessages::Arrival;
  using Time = Arrival::Time;
  using Duration = std::chrono::nanoseconds;

  // `usual`: the share of the last rounds' times that are no longer than what is taken for usual. `least_silence`: a
  // message of which nothing has come is waited for at least so long; `least_gap`: likewise after its newest piece.
  explicit Patience(double loss, double usual = 0.5, Duration least_silence = first_silence, Duration least_gap = {})
      : loss_(loss), usual_(usual), least_silence_(least_silence), least_gap_(least_gap) {}

  bool is_enough(const Arrival& arrival, std::size_t pieces) const {
    return static_cast<double>(pieces - arrival.pieces) <= loss_ * static_cast<double>(pieces);
  }

  // When to go on without the rest, as far as is known now. `began`: the first sign that the sender is there;
  // Time::max() if there was none yet.
  Time until(const Arrival& arrival, std::size_t pieces, Time began) const {
    const Duration pause = most_gaps * ((arrival.newest_at - arrival.first_at) /
                                        std::max<std::int64_t>(static_cast<std::int64_t>(arrival.pieces), 1));
    if (is_enough(arrival, pieces)) {
      if (arrival.pieces == pieces || arrival.last_is_here || arrival.pieces == 0) return Time::min();
      return arrival.newest_at + std::max<Duration>(pause, arrival.reordering);
    }
    if (began == Time::max()) return began;
    const Time heard = std::max(arrival.newest_at, began);
    const Duration late = late_after(pieces);
    // Until something has come a message is late by the deadline alone.
    Duration gap = arrival.pieces > 0 ? pause : std::max(late, least_silence_);
    gap = std::max({gap, least_gap_, Duration(arrival.reordering)});
    const bool knows = histories_[size_class(pieces)].count >= least_rounds;
    const Time silent = knows || arrival.pieces == 0 ? std::max(began + late, heard + gap)
                                                     : heard + std::max<Duration>(gap, first_silence);
    return arrival.last_is_here ? std::min(silent, heard + arrival.reordering) : silent;
  }

  // How long a message of so many pieces took since `began`.
  void took(std::size_t pieces, Duration duration) {
    History& history = histories_[size_class(pieces)];
    history.times[history.count++ % rounds_kept] = duration;
  }

  // It did not end in that time: who is late again and again is waited for after a few rounds. Up to a limit, since
  // each such wait is longer than the one before.
  void took_longer(std::size_t pieces, Duration than) { took(pieces, std::min(2 * than, longest_guess)); }

  // Until enough rounds are known to learn from: of a message of which nothing comes, and after its newest piece.
  static constexpr Duration first_silence = std::chrono::milliseconds(50);
  static constexpr Duration first_deadline = std::chrono::milliseconds(500);
  // Of what never ended.
  static constexpr Duration longest_guess = 4 * first_deadline;
  static constexpr std::size_t rounds_kept = 15;
  static constexpr std::size_t least_rounds = 4;

 private:
  struct History {
    std::array<Duration, rounds_kept> times{};
    std::size_t count = 0;
  };

  // Times of messages of about one size are alike.
  static std::size_t size_class(std::size_t pieces) { return static_cast<std::size_t>(std::bit_width(pieces)); }

  Duration late_after(std::size_t pieces) const {
    const History& history = histories_[size_class(pieces)];
    if (history.count < least_rounds) return first_deadline;
    auto times = history.times;
    const std::size_t known = std::min(history.count, rounds_kept);
    const auto place = static_cast<std::ptrdiff_t>(usual_ * static_cast<double>(known));
    std::nth_element(times.begin(), times.begin() + place, times.begin() + static_cast<std::ptrdiff_t>(known));
    return times[static_cast<std::size_t>(place)] + times[static_cast<std::size_t>(place)] / 4;
  }

  static constexpr int most_gaps = 8;  // so many times the mean pause between pieces is no silence

  const double loss_;
  const double usual_;
  const Duration least_silence_, least_gap_;
  std::array<History, 65> histories_{};
};

}  // namespace ranvier::engine
