// What a run finds out about one shape of operation: whether another algorithm than the one that "auto" took is faster.
// Pure: no clock, no messages. All ranks have the same lesson as long as they take the same operations and are told the
// same findings, since nothing else decides.
//
// STAR-MPI's measure-select, with the model in place of trying all: A. Faraj, X. Yuan, D. Lowenthal: STAR-MPI: self
// tuned adaptive routines for MPI collective operations. ICS 2006.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/selection.h"

namespace ranvier::engine {

class Lesson {
 public:
  // Of each of two algorithms in a duel; and as many before it, of the one that is followed.
  static constexpr std::size_t samples = 16;
  // At which operations of a shape the ranks tell each other what they found, and may begin a duel.
  static constexpr std::array<std::uint64_t, 3> agreements{50, 200, 800};

  enum class Side : std::uint8_t { followed, challenger };
  struct Turn {
    bool is_due = false;              // nothing has been taken: the ranks have to share their findings first
    bool is_timed = false;            // how long it takes is to be noted
    Side side = Side::followed;       // for that
    std::string_view algorithm = {};  // empty: auto's own choice
  };
  // The next operation. One that is not `waited` for has no duration that means anything; where a rank has such ones
  // while others are timed, nobody learns.
  Turn take(bool waited);
  // The one that was taken last has not run.
  void give_back() { --count_; }
  void note(Side side, double seconds);

  // For the others to know: seconds of the one that is followed and of the challenger, and whether this rank objects
  // (1 or 0). Of all ranks' findings the largest count.
  using Findings = std::array<double, 3>;
  static constexpr Findings objection{0, 0, 1};
  Findings findings() const;
  // `ranked`: what the model says of all algorithms at this size, the cheapest first, or what those took that were
  // tried (Selection::ranked); `own`: of them, auto's. `scale`: how many times longer than predicted other shapes take.
  void conclude(const Findings& most, std::span<const Prediction> ranked, std::string_view own, double scale);
  // Nothing more will be learned; what was learned stays.
  void close();

  bool is_closed() const { return due_ == never; }
  // What is followed in place of auto's own choice; empty: nothing else.
  std::string_view learned() const { return learned_; }
  // How many times longer than predicted it took, once that is known.
  std::optional<double> error() const { return error_; }

 private:
  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

  double seconds_of(Side) const;
  void await_next();
  void end_duel(double followed, double challenger);
  void challenge(double followed, std::span<const Prediction> ranked, std::string_view own, double scale);

  std::uint64_t count_ = 0;            // operations taken
  std::uint64_t due_ = agreements[0];  // before which one the ranks agree
  std::uint8_t agreement_ = 0;         // of `agreements`, that one or the last one
  bool objects_ = false;               // this rank does, see take()
  std::string learned_;
  std::string challenger_;        // empty: no duel is on
  std::vector<std::string> met_;  // who was challenger
  std::optional<double> error_;
  std::array<std::array<float, samples>, 2> seconds_{};  // by side
  std::array<std::uint8_t, 2> noted_{};
};

}  // namespace ranvier::engine
