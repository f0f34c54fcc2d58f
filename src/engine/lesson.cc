#include "engine/lesson.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace ranvier::engine {
namespace {

// A challenger has to be clearly faster: durations of operations are noisy, and each change of algorithm changes the
// last bits of sums.
constexpr double clearly_faster = 0.9;

// Algorithms whose predictions differ by less do the same work in another order.
constexpr double alike = 1e-3;

// Of the samples so many count, the shortest: what disturbs an operation, a rank that comes late above all, makes it
// longer. The shortest alone could be a slip of the clock.
constexpr std::size_t counted = Lesson::samples / 4;

// Which side the operations of a duel are of: the Thue-Morse sequence, so that shapes that come in turns (two sizes of
// one class, one after the other) come to both sides alike.
Lesson::Side side_of(std::uint64_t number) {
  return std::popcount(number) % 2 == 0 ? Lesson::Side::followed : Lesson::Side::challenger;
}

}  // namespace

Lesson::Turn Lesson::take(bool waited) {
  if (count_ == due_) return {.is_due = true};
  const std::uint64_t number = count_++;
  const std::uint64_t window = challenger_.empty() ? samples : 2 * samples;
  Turn turn{.algorithm = learned_};
  if (due_ - number > window) return turn;
  if (!waited) objects_ = true;
  turn.is_timed = waited;
  if (challenger_.empty()) return turn;
  turn.side = side_of(number - (due_ - window));
  if (turn.side == Side::challenger) turn.algorithm = challenger_;
  return turn;
}

void Lesson::note(Side side, double seconds) {
  auto& noted = noted_[static_cast<std::size_t>(side)];
  if (noted < samples) seconds_[static_cast<std::size_t>(side)][noted++] = static_cast<float>(seconds);
}

double Lesson::seconds_of(Side side) const {
  auto sorted = seconds_[static_cast<std::size_t>(side)];
  std::sort(sorted.begin(), sorted.begin() + noted_[static_cast<std::size_t>(side)]);
  double sum = 0;
  for (std::size_t i = 0; i < counted; ++i) sum += static_cast<double>(sorted[i]);
  return sum / counted;
}

Lesson::Findings Lesson::findings() const {
  const auto enough = [&](Side side) { return noted_[static_cast<std::size_t>(side)] >= counted; };
  const bool duel = !challenger_.empty();
  if (objects_ || !enough(Side::followed) || (duel && !enough(Side::challenger))) return objection;
  return {seconds_of(Side::followed), duel ? seconds_of(Side::challenger) : 0, 0};
}

void Lesson::conclude(const Findings& most, std::span<const Prediction> ranked, std::string_view own, double scale) {
  const auto [followed, challenger, objections] = most;
  if (objections > 0) return close();
  if (challenger_.empty())
    challenge(followed, ranked, own, scale);
  else
    end_duel(followed, challenger);
  noted_ = {};
}

void Lesson::close() {
  challenger_.clear();
  due_ = never;
}

void Lesson::await_next() {
  ++agreement_;
  due_ = agreement_ < agreements.size() ? agreements[agreement_] : never;
}

void Lesson::end_duel(double followed, double challenger) {
  if (challenger < clearly_faster * followed) learned_ = challenger_;
  challenger_.clear();
  await_next();
}

// The next best by the model gets its chance where the model, as wrong as it is elsewhere, promises less than the one
// that is followed takes.
void Lesson::challenge(double followed, std::span<const Prediction> ranked, std::string_view own, double scale) {
  const std::string_view current = learned_.empty() ? own : std::string_view(learned_);
  const auto prediction_of = [&](std::string_view name) {
    return std::ranges::find(ranked, name, &Prediction::algorithm);
  };
  const auto predicted = prediction_of(current);
  if (predicted == ranked.end() || !(predicted->seconds > 0)) return close();
  error_ = followed / predicted->seconds;

  const auto is_new = [&](const Prediction& each) {
    const auto differs = [&](std::string_view name) {
      const auto other = prediction_of(name);
      return other == ranked.end() || std::abs(each.seconds - other->seconds) > alike * other->seconds;
    };
    return differs(own) && differs(current) && std::ranges::all_of(met_, differs);
  };
  const auto next = std::ranges::find_if(ranked, is_new);
  if (next == ranked.end()) return close();
  if (scale * next->seconds >= followed) return await_next();
  challenger_ = next->algorithm;
  met_.push_back(challenger_);
  due_ = count_ + 2 * samples;
}

}  // namespace ranvier::engine
