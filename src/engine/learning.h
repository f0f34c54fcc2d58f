// Corrects what "auto" chose by how long the operations of this run take, alike on all ranks: a Lesson for each
// collective and class of sizes (docs/decisions/0015).
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/spin_lock.h"
#include "engine/lesson.h"
#include "engine/selection.h"
#include "engine/tuning_file.h"
#include "ranvier/communicator.h"
#include "ranvier/tuning.h"

namespace ranvier::engine {

// The same on all ranks, but for the functions.
struct LearningSettings {
  std::shared_ptr<Selection> selection = {};       // what auto chooses by
  TuningTable given = {};                          // its rows stand
  std::function<void(const Request&)> check = {};  // throws what the next two would, of a request that makes no sense
  std::function<void(const Request&)> run = {};    // does it, to its end and without learning
  std::function<Work(const Request&)> start = {};
  std::function<double()> clock = {};  // seconds
};

// Only collectives that no rank leaves before all others have come: of these alone all ranks may wait for each other's
// findings without waiting for anything new, and a duration means something on each rank.
class Learning {
 public:
  explicit Learning(LearningSettings settings);

  // Of one communicator, in the order that is the same on all ranks; so two threads never are in here at once, but for
  // `corrected`. Before some operations the ranks exchange a few numbers; else nothing is allocated or sent.
  void run(const Request&);
  Work start(const Request&);

  // `rows`, which are of one collective and cover all sizes, with what has been learned. Thread-safe.
  std::vector<TuningRow> corrected(Collective, std::vector<TuningRow> rows) const;
  // What has been learned, as rows for a table of the next run, beside what that says already; of what somebody else
  // than a run put there nothing is replaced. Thread-safe.
  RowsByKind additions_to(const TuningTable&) const;
  // Puts them into its file, which need not exist and stays as it is where nothing was learned. Throws Error{config}.
  void add_to(const std::filesystem::path& file) const;

 private:
  static constexpr std::array learned_collectives{Collective::all_reduce, Collective::all_gather,
                                                  Collective::reduce_scatter};
  // Powers of two, with their borders at the geometric means, as rows of the model have them.
  static constexpr std::size_t first_class = 2, last_class = 30;
  using Lessons = std::array<Lesson, last_class - first_class + 1>;

  static std::size_t bytes_of(const Request&);
  static std::size_t least_of(std::size_t size_class);
  static std::size_t largest_of(std::size_t size_class);
  static std::size_t class_of(std::size_t bytes);

  Lesson* lesson_of(const Request&);
  Lesson::Turn take(Lesson&, const Request&);
  bool may_agree(Lesson&, const Request&);
  void agree(Lesson&, const Request&);
  double scale_beside(const Lesson&) const;
  TuningRow kind_of(std::size_t collective) const;
  std::vector<TuningRow> overlay(std::size_t collective, std::vector<TuningRow> rows,
                                 const std::vector<TuningRow>& chosen = {}) const;

  const LearningSettings settings_;
  mutable SpinLock lock_;  // of lessons_
  std::array<Lessons, learned_collectives.size()> lessons_;
};

}  // namespace ranvier::engine
