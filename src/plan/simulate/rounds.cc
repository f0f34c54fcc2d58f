// Schedules that do in each round what they did in the one before, as rings do, where all their rounds are too many:
// the first ones, and a line through their times. Where ranks are of several kinds, such as those at the end of a
// torus' row, times rise evenly once what is late somewhere has come around; four lengths say whether they do.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/simulate/instance.h"

namespace ranvier::plan {
namespace {

constexpr std::uint32_t fewest_rounds = 16'384;  // fewer are simulated
constexpr std::uint32_t shortest = 64;
constexpr std::size_t most_simulated = 12'000'000;  // messages of all kinds of ranks
constexpr double straight = 1e-5;                   // of the longest time: a line
constexpr double nearly_straight = 2e-3;            // or what is taken for one where there may be no more rounds

std::uint32_t rounds_of(const std::vector<Step>& steps) {
  std::uint32_t rounds = 0;
  for (const Step& step : steps) rounds = std::max(rounds, step.round + 1);
  return rounds;
}

// But for a few, in which a turn begins or ends.
bool repeats(const std::vector<Step>& steps, std::uint32_t rounds) {
  constexpr std::ptrdiff_t most_others = 8;
  using Moved = std::tuple<bool, Rank, std::uint32_t>;
  std::vector<std::vector<Moved>> moved(rounds);
  for (const Step& step : steps)
    if (step.peer >= 0) moved[step.round].emplace_back(step.action == Action::send, step.peer, step.chunks);
  return std::ranges::count_if(moved, [&](const auto& each) { return each != moved[rounds / 4]; }) <= most_others;
}

// What a rank does where rank 0 does `steps`, in worlds that look the same from each rank. None of steps of several
// chunks, which may not lie beside each other any more.
std::optional<std::vector<Step>> turned(std::vector<Step> steps, Rank rank, const Schedule& schedule) {
  const auto chunk = [&](Place& place) {
    place.chunk = (place.chunk + static_cast<std::uint32_t>(rank)) % schedule.chunks;
  };
  for (Step& step : steps) {
    if (step.chunks != 1) return std::nullopt;
    if (step.peer >= 0) step.peer = static_cast<Rank>((std::int64_t{step.peer} + rank) % schedule.world);
    if (step.action != Action::recv) chunk(step.from);
    if (step.action != Action::send) chunk(step.to);
  }
  return steps;
}

// The first rounds. Whole programs are long, and of thousands of ranks too long to be made, where one can be had from
// another: in rings.
class Beginning {
 public:
  Beginning(const Schedule& schedule, std::uint32_t most)
      : schedule_(schedule), most_(most), of_first_(made(0)), turns_(turns()) {}

  Schedule of(std::uint32_t rounds) const {
    Schedule first = schedule_;
    first.program = [this, rounds](Rank rank) {
      auto steps = turns_ ? *turned(of_first_, rank, schedule_) : known(rank);
      std::erase_if(steps, [rounds](const Step& step) { return step.round >= rounds; });
      return steps;
    };
    return first;
  }

 private:
  std::vector<Step> made(Rank rank) const {
    std::vector<Step> steps;
    for (const Step& step : schedule_.program(rank))
      if (step.round < most_) steps.push_back(step);
    return steps;
  }

  bool turns() const {
    if (schedule_.chunks != static_cast<std::uint32_t>(schedule_.world)) return false;
    return std::ranges::all_of(std::array{1, schedule_.world / 3, schedule_.world - 1}, [&](Rank rank) {
      const auto steps = turned(of_first_, rank, schedule_);
      return steps && are_equal(*steps, made(rank));
    });
  }

  const std::vector<Step>& known(Rank rank) const {
    const auto [found, is_new] = known_.try_emplace(rank);
    if (is_new) found->second = made(rank);
    return found->second;
  }

  const Schedule& schedule_;
  const std::uint32_t most_;
  const std::vector<Step> of_first_;
  const bool turns_;
  mutable std::map<Rank, std::vector<Step>> known_;
};

// Of rounds that double from one try to the next, those that are few enough.
std::optional<SimulatedRun> lines(const Job& job, std::uint32_t rounds) {
  std::optional<SimulatedRun> found;
  for (std::uint32_t few = shortest; 5 * few < fewest_rounds; few *= 4) {
    const Beginning beginning(job.schedule, 5 * few);
    Symmetry own;
    Symmetry& symmetry = job.symmetry != nullptr ? *job.symmetry : own;
    const std::size_t cut = job.cut + (std::size_t{few} << 40);  // of so many rounds, not of all
    std::array<SimulatedRun, 4> runs;                            // of 2, 3, 4 and 5 times so many
    // The longest first: what is proven of it is of those it begins with.
    for (std::size_t i = runs.size(); i-- > 0;) {
      const Schedule schedule = beginning.of(static_cast<std::uint32_t>(i + 2) * few);
      const auto instance = folded({schedule, job.topology, job.count, job.element_bytes, job.options, &symmetry, cut});
      if (!instance) return found;
      const std::size_t messages = instance->programs.front().sends.size() * instance->programs.size();
      if (i + 1 == runs.size() && messages * 14 / 5 > most_simulated) return found;
      runs[i] = run(*instance, job.options);
      runs[i].ranks = static_cast<Rank>(instance->programs.size());
    }
    const double step = (runs[3].ns - runs[0].ns) / 3;
    double bend = 0;
    for (std::size_t i = 0; i + 1 < runs.size(); ++i)
      bend = std::max(bend, std::abs(runs[i + 1].ns - runs[i].ns - step) / runs[3].ns);
    if (bend <= nearly_straight) found = on_the_line(runs[0], runs[3], (static_cast<double>(rounds) / few - 2) / 3);
    if (bend <= straight) return found;
  }
  return found;
}

}  // namespace

bool are_equal(const std::vector<Step>& one, const std::vector<Step>& other) {
  return std::ranges::equal(one, other, [](const Step& a, const Step& b) {
    return std::tie(a.action, a.peer, a.from, a.to, a.round, a.chunks) ==
           std::tie(b.action, b.peer, b.from, b.to, b.round, b.chunks);
  });
}

std::uint32_t repeated_rounds(const Job& job) {
  const SimulateOptions& options = job.options;
  // Of these the time is not one of rounds that follow one another.
  if (!is_one_by_itself(options) || options.reduce_bytes_per_ns > 0) return 0;
  std::uint32_t rounds = 0;
  if (job.schedule.world < static_cast<Rank>(fewest_rounds / 2)) return 0;
  for (const Rank rank : {Rank{0}, job.schedule.world / 3, job.schedule.world - 1}) {
    const auto steps = job.schedule.program(rank);
    rounds = rounds_of(steps);
    if (rounds < fewest_rounds || !repeats(steps, rounds)) return 0;
  }
  return rounds;
}

std::optional<SimulatedRun> by_first_rounds(const Job& job) {
  const auto rounds = repeated_rounds(job);
  return rounds > 0 ? lines(job, rounds) : std::nullopt;
}

}  // namespace ranvier::plan
