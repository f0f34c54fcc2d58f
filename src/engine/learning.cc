#include "engine/learning.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace ranvier::engine {

Learning::Learning(LearningSettings settings) : settings_(std::move(settings)), selection_(settings_.selection) {
  for (std::size_t i = 0; i < learned_collectives.size(); ++i)
    for (std::size_t size_class = first_class; size_class <= last_class; ++size_class)
      if (is_given(learned_collectives[i], size_class)) lessons_[i][size_class - first_class].close();
}

// ---- Shapes.

// As tuning tables count them: of the longest buffer of a rank.
std::size_t Learning::bytes_of(const Request& request) {
  return request.collective == Collective::reduce_scatter ? request.input.bytes() : request.output.bytes();
}

std::size_t Learning::largest_of(std::size_t size_class) {
  if (size_class == last_class) return TuningRow::max;
  return static_cast<std::size_t>(std::sqrt(std::ldexp(1.0, static_cast<int>(2 * size_class + 1))));
}

std::size_t Learning::class_of(std::size_t bytes) {
  const std::size_t power = std::clamp<std::size_t>(std::bit_width(bytes) - 1, first_class, last_class);
  return bytes <= largest_of(power) ? power : power + 1;
}

bool Learning::is_given(Collective collective, std::size_t size_class) const {
  const std::size_t least = size_class == first_class ? 0 : largest_of(size_class - 1) + 1;
  std::size_t begin = 0;
  for (const TuningRow& row : settings_.given.rows()) {
    if (row.collective != collective || row.transport != settings_.selection.transport ||
        row.ranks != settings_.selection.world)
      continue;
    if (row.algorithm != "auto" && begin <= largest_of(size_class) && row.up_to >= least) return true;
    if (row.up_to == TuningRow::max) break;
    begin = row.up_to + 1;
  }
  return false;
}

// Null for one of which nothing is to be learned. All ranks answer alike, since what counts here is the same on all.
Lesson* Learning::lesson_of(const Request& request) {
  if (!request.algorithm.empty() && request.algorithm != "auto") return nullptr;
  if (request.priority != 0 || !request.input_splits.empty() || !request.output_splits.empty()) return nullptr;
  const auto found = std::ranges::find(learned_collectives, request.collective);
  const std::size_t bytes = bytes_of(request);
  if (found == learned_collectives.end() || bytes == 0) return nullptr;
  return &lessons_[static_cast<std::size_t>(found - learned_collectives.begin())][class_of(bytes) - first_class];
}

// ---- Operations.

void Learning::run(const Request& request) {
  Lesson* const lesson = lesson_of(request);
  if (lesson == nullptr) return settings_.run(request);
  const Lesson::Turn turn = take(*lesson, request);
  try {
    if (turn.algorithm.empty() && !turn.is_timed) return settings_.run(request);
    Request chosen = request;
    if (!turn.algorithm.empty()) chosen.algorithm = turn.algorithm;
    if (!turn.is_timed) return settings_.run(chosen);
    const double began = settings_.clock();
    settings_.run(chosen);
    const double seconds = settings_.clock() - began;
    const std::lock_guard lock(lock_);
    lesson->note(turn.side, seconds);
  } catch (...) {
    // A call that was refused here may have been right on the other ranks, and is made again.
    const std::lock_guard lock(lock_);
    lesson->give_back();
    throw;
  }
}

Lesson::Turn Learning::take(Lesson& lesson, const Request& request) {
  {
    const std::lock_guard lock(lock_);
    if (const Lesson::Turn turn = lesson.take(true); !turn.is_due) return turn;
  }
  agree(lesson, request);
  const std::lock_guard lock(lock_);
  return lesson.take(true);
}

// Every rank needs all others for the operation that comes next, so that waiting for them here is nothing new.
void Learning::agree(Lesson& lesson, const Request& request) {
  Lesson::Findings most = lesson.findings();
  settings_.run({.collective = Collective::all_reduce,
                 .input = most,
                 .output = most,
                 .op = ReduceOp::max,
                 .timeout = request.timeout});
  const std::size_t bytes = bytes_of(request);
  const auto ranked = selection_.ranked(request.collective, bytes);
  const auto fits = [&](const TuningRow& row) { return bytes <= row.up_to; };
  const std::string& own = std::ranges::find_if(selection_.rows(request.collective), fits)->algorithm;
  const std::lock_guard lock(lock_);
  lesson.conclude(most, ranked, own, scale_beside(lesson));
}

// The median, since it is the same bits on all ranks whatever their libraries make of a logarithm.
double Learning::scale_beside(const Lesson& lesson) const {
  std::vector<double> errors;
  for (const Lessons& lessons : lessons_)
    for (const Lesson& other : lessons)
      if (&other != &lesson && other.error()) errors.push_back(*other.error());
  if (errors.empty()) return 1;
  const auto middle = errors.begin() + static_cast<std::ptrdiff_t>(errors.size() / 2);
  std::ranges::nth_element(errors, middle);
  return *middle;
}

// Whoever starts an operation must not wait for others: a message of its own may be what lets them come. It objects
// instead, and knows by that what all will conclude.
Work Learning::start(const Request& request) {
  Lesson* const lesson = lesson_of(request);
  if (lesson == nullptr) return settings_.start(request);
  Lesson::Turn turn;
  {
    const std::lock_guard lock(lock_);
    turn = lesson->take(false);
  }
  if (turn.is_due) {
    const auto most = std::make_shared<Lesson::Findings>(Lesson::objection);
    settings_
        .start({.collective = Collective::all_reduce,
                .input = *most,
                .output = *most,
                .op = ReduceOp::max,
                .timeout = request.timeout})
        .on_done([most] {});  // which keeps it until then
    const std::lock_guard lock(lock_);
    lesson->close();
    turn = lesson->take(false);
  }
  try {
    if (turn.algorithm.empty()) return settings_.start(request);
    Request chosen = request;
    chosen.algorithm = turn.algorithm;
    return settings_.start(chosen);
  } catch (...) {
    const std::lock_guard lock(lock_);
    lesson->give_back();
    throw;
  }
}

// ---- What came out.

std::vector<TuningRow> Learning::overlay(std::size_t collective, std::vector<TuningRow> rows) const {
  for (std::size_t size_class = first_class; size_class <= last_class; ++size_class) {
    const std::string_view learned = lessons_[collective][size_class - first_class].learned();
    if (learned.empty()) continue;
    rows = overlaid(rows, size_class == first_class ? 0 : largest_of(size_class - 1) + 1,
                    {.collective = learned_collectives[collective],
                     .transport = settings_.selection.transport,
                     .ranks = settings_.selection.world,
                     .up_to = largest_of(size_class),
                     .algorithm = std::string(learned),
                     .learned = true});
  }
  return rows;
}

std::vector<TuningRow> Learning::corrected(Collective collective, std::vector<TuningRow> rows) const {
  const auto found = std::ranges::find(learned_collectives, collective);
  if (found == learned_collectives.end()) return rows;
  const std::lock_guard lock(lock_);
  return overlay(static_cast<std::size_t>(found - learned_collectives.begin()), std::move(rows));
}

bool Learning::add_to(TuningTable& table) const {
  bool any = false;
  const std::lock_guard lock(lock_);
  for (std::size_t i = 0; i < learned_collectives.size(); ++i) {
    const TuningRow automatic{.collective = learned_collectives[i],
                              .transport = settings_.selection.transport,
                              .ranks = settings_.selection.world,
                              .algorithm = "auto"};
    std::vector<TuningRow> rows;
    for (const TuningRow& row : settings_.given.rows())
      if (row.collective == automatic.collective && row.transport == automatic.transport &&
          row.ranks == automatic.ranks)
        rows.push_back(row);
    if (rows.empty() || rows.back().up_to != TuningRow::max) rows.push_back(automatic);
    const std::vector<TuningRow> corrected = overlay(i, rows);
    if (corrected == rows) continue;
    table.replace(corrected);
    any = true;
  }
  return any;
}

void Learning::add_to(const std::filesystem::path& file) const {
  // Another communicator may have written to it since this one read it.
  TuningTable table = std::filesystem::exists(file) ? TuningTable::read(file) : settings_.given;
  if (add_to(table)) table.write(file);
}

}  // namespace ranvier::engine
