#include "engine/learning.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "engine/message_header.h"

namespace ranvier::engine {
namespace {

std::vector<TuningRow> rows_like(const TuningRow& kind, const TuningTable& table) {
  std::vector<TuningRow> rows;
  std::ranges::copy_if(table.rows(), std::back_inserter(rows),
                       [&](const TuningRow& row) { return same_kind(row, kind); });
  return rows;
}

// Whether `rows`, of one kind, name an algorithm for any of the sizes.
bool name_one(const std::vector<TuningRow>& rows, std::size_t least, std::size_t most) {
  std::size_t begin = 0;
  for (const TuningRow& row : rows) {
    if (row.algorithm != TuningRow::automatic && begin <= most && row.up_to >= least) return true;
    if (row.up_to == TuningRow::max) break;
    begin = row.up_to + 1;
  }
  return false;
}

}  // namespace

Learning::Learning(LearningSettings settings) : settings_(std::move(settings)) {
  for (std::size_t i = 0; i < learned_collectives.size(); ++i) {
    const std::vector<TuningRow> given = rows_like(kind_of(i), settings_.given);
    for (std::size_t size_class = first_class; size_class <= last_class; ++size_class)
      if (name_one(given, least_of(size_class), largest_of(size_class))) lessons_[i][size_class - first_class].close();
  }
}

TuningRow Learning::kind_of(std::size_t collective) const {
  return {.collective = learned_collectives[collective],
          .transport = settings_.selection->settings().transport,
          .ranks = settings_.selection->settings().world,
          .algorithm = std::string(TuningRow::automatic)};
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

std::size_t Learning::least_of(std::size_t size_class) {
  return size_class == first_class ? 0 : largest_of(size_class - 1) + 1;
}

std::size_t Learning::class_of(std::size_t bytes) {
  const std::size_t power = std::clamp<std::size_t>(std::bit_width(bytes) - 1, first_class, last_class);
  return bytes <= largest_of(power) ? power : power + 1;
}

// Null for one of which nothing is to be learned. All ranks answer alike: what counts here is the same on all, and of
// splits that they are given, which all ranks do or none (Request).
Lesson* Learning::lesson_of(const Request& request) {
  if (!request.algorithm.empty() && request.algorithm != TuningRow::automatic) return nullptr;
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
  if (may_agree(lesson, request)) agree(lesson, request);
  const std::lock_guard lock(lock_);
  return lesson.take(true);
}

// First of all, whatever refuses the request does so now: the other ranks, whose request is right, must not find this
// one in their agreement and then nowhere. And nothing is learned where auto itself had to leave the links of the
// topology, since any algorithm that is named is refused there.
bool Learning::may_agree(Lesson& lesson, const Request& request) {
  settings_.check(request);
  if (settings_.selection->keeps_to_links(request.collective)) return true;
  const std::lock_guard lock(lock_);
  lesson.close();
  return false;
}

// Every rank needs all others for the operation that comes next, so that waiting for them here is nothing new.
void Learning::agree(Lesson& lesson, const Request& request) {
  Lesson::Findings most = lesson.findings();
  settings_.run({.collective = Collective::all_reduce,
                 .input = most,
                 .output = most,
                 .op = ReduceOp::max,
                 .timeout = request.timeout,
                 .label = agreement_label});
  const std::size_t bytes = bytes_of(request);
  const auto ranked = settings_.selection->ranked(request.collective, bytes);
  const std::string& own = settings_.selection->choice(request.collective, bytes);
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
    if (may_agree(*lesson, request)) {
      const auto most = std::make_shared<Lesson::Findings>(Lesson::objection);
      settings_
          .start({.collective = Collective::all_reduce,
                  .input = *most,
                  .output = *most,
                  .op = ReduceOp::max,
                  .timeout = request.timeout,
                  .label = agreement_label})
          .on_done([most] {});  // which keeps it until then
    }
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

// But where `chosen`, of one kind, name an algorithm.
std::vector<TuningRow> Learning::overlay(std::size_t collective, std::vector<TuningRow> rows,
                                         const std::vector<TuningRow>& chosen) const {
  for (std::size_t size_class = first_class; size_class <= last_class; ++size_class) {
    const std::string_view learned = lessons_[collective][size_class - first_class].learned();
    const std::size_t least = least_of(size_class), most = largest_of(size_class);
    if (learned.empty() || name_one(chosen, least, most)) continue;
    TuningRow row = kind_of(collective);
    row.up_to = most;
    row.algorithm = learned;
    row.learned = true;
    rows = overlaid(rows, least, row);
  }
  return rows;
}

std::vector<TuningRow> Learning::corrected(Collective collective, std::vector<TuningRow> rows) const {
  const auto found = std::ranges::find(learned_collectives, collective);
  if (found == learned_collectives.end()) return rows;
  const std::lock_guard lock(lock_);
  return overlay(static_cast<std::size_t>(found - learned_collectives.begin()), std::move(rows));
}

RowsByKind Learning::additions_to(const TuningTable& table) const {
  RowsByKind all;
  const std::lock_guard lock(lock_);
  for (std::size_t i = 0; i < learned_collectives.size(); ++i) {
    std::vector<TuningRow> rows = rows_like(kind_of(i), table);
    if (rows.empty() || rows.back().up_to != TuningRow::max) rows.push_back(kind_of(i));
    std::vector<TuningRow> chosen = rows;
    for (TuningRow& row : chosen)
      if (row.learned) row.algorithm = TuningRow::automatic;
    if (std::vector<TuningRow> both = overlay(i, rows, chosen); both != rows) all.push_back(std::move(both));
  }
  return all;
}

void Learning::add_to(const std::filesystem::path& file) const {
  if (additions_to({}).empty()) return;
  // Another communicator, or somebody, may have written to it since this one began.
  complete(file, [this](const TuningTable& table) { return additions_to(table); });
}

}  // namespace ranvier::engine
