// Workers that are slow on purpose: `ranvier train` slows them down by sleeping, `ranvier simulate` foretells what that
// does. Both take the same words and draw the same late steps.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier {

// From step `from` until before `to` computing takes that worker so many times as long.
struct Straggler {
  std::uint64_t worker = 0;
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  double factor = 1;
};

struct UnequalWorkers {
  std::vector<double> speeds = {};  // by worker, 1 where the list ends; 0.5: computing takes twice as long
  double jitter_share = 0;          // so many of the steps, drawn at random for each worker, take …
  double jitter_factor = 1;         // … so many times as long
  std::vector<Straggler> stragglers = {};
  bool any() const { return !speeds.empty() || jitter_share > 0 || !stragglers.empty(); }
};

// "1,1,0.5,0.25"; "0.05x4": one step in twenty takes four times as long; "2:100-200x4,0:300-400x2": of worker 2 the
// steps from 100 to 199 take four times as long, … Throw Error{usage} for anything else.
void take_speeds(std::string_view words, UnequalWorkers& workers);
void take_jitter(std::string_view words, UnequalWorkers& workers);
void take_stragglers(std::string_view words, UnequalWorkers& workers);
// The words that these take for the same; none where there is nothing of the kind.
std::string speeds_in_words(const UnequalWorkers& workers);
std::string jitter_in_words(const UnequalWorkers& workers);
std::string stragglers_in_words(const UnequalWorkers& workers);
// Throws Error{usage} where more workers are named than there are.
void check_workers(const UnequalWorkers& workers, std::uint64_t count);
// Throws Error{usage} where a speed is given to some of them only.
void check_speeds(const UnequalWorkers& workers, std::uint64_t count);

// How slow one of them is.
class Slowness {
 public:
  Slowness(const UnequalWorkers& workers, std::uint64_t worker, std::uint64_t seed);
  // How many times as long as usual the next step's computing takes, which is number `step` of everybody's.
  double of(std::uint64_t step);

 private:
  double usual_;
  double jitter_share_, jitter_factor_;
  std::vector<Straggler> straggles_;
  std::mt19937_64 random_;
};

}  // namespace ranvier
