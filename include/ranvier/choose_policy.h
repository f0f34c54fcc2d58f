// Which synchronization policy suits a cluster: a pure function of what was measured of it. Each candidate's time for a
// step of everybody's samples is counted from speeds and link times; the one with the least is taken, less exact ones
// only where they are faster by a margin.
//
//   const auto choice = choose_policy({.speeds = {100, 100, 50, 25}, .nodes = {0, 0, 1, 1}, .samples = 128,
//                                      .inside_seconds = 0.001, .between_seconds = 0.08, …});
//   choice.sync                                  // "node:16"
//   choice.reason                                // why, with the times of all candidates
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier {

struct PolicySituation {
  std::vector<double> speeds = {};  // by rank: samples a second, by the median step
  double late_share = 0;            // so many of a rank's steps …
  double late_factor = 1;           // … take so many times as long, …
  // … which so many steps of all ranks have said.
  double late_of = std::numeric_limits<double>::infinity();
  std::vector<int> nodes = {};  // by rank
  double samples = 1;           // of a step of everybody's
  double inside_seconds = 0;    // what averaging all parameters takes: in every node at once, …
  double between_seconds = 0;   // … and among everybody
  double hidden_seconds = 0;    // of that, what a step of bsp does while it still computes
  double push_seconds = 0;      // until a worker that pushes alone has new parameters from the servers
  double served_seconds = 0;    // how long a push keeps them busy: another one waits
  bool takes_servers = true;    // plain SGD without a codec: what parameter servers can do
  bool takes_shares = true;     // samples may be given out by speed
  // What is not measured yet counts as the least that it can be, and nothing is chosen that hangs on it.
  struct Measured {
    bool inside = true;
    bool push = true;
    bool served = true;
    bool operator==(const Measured&) const = default;
  };
  Measured measured = {};
  double steps_left = std::numeric_limits<double>::infinity();
  double change_seconds = 0;  // what measuring something for another way, and changing to it, holds training up
  double doubt = 0;           // by this share more another way has to cost less, since few steps have been seen
};

// Of `node`, as forecasts have it.
constexpr int node_period = 16;

// How one way would do.
struct PolicyForecast {
  std::string sync = {};
  bool split_by_speed = false;  // samples of a step
  double seconds = 0;           // for the samples of a step of everybody's
  double margin = 0;            // by which it has to be faster than an exact one, since a step of its own is worth less
  bool at_least = false;        // something that `seconds` hangs on has not been measured
  double cost() const { return seconds * (1 + margin); }
  bool operator==(const PolicyForecast&) const = default;
};

// In the order of preference among equals: exact ones first. Throws Error{usage} for speeds that are not above 0.
std::vector<PolicyForecast> forecast_policies(const PolicySituation& situation);

struct PolicyChoice {
  std::string sync = {};
  bool split_by_speed = false;
  std::string reason = {};  // a sentence
};
// `current`: what is in use (empty: bsp, which nobody has chosen yet). What was chosen stays unless another one costs
// less by a tenth, since measurements are never the same twice; and whatever is in use stays where the steps that are
// left win less than changing takes.
PolicyChoice choose_policy(const PolicySituation& situation, const PolicyChoice& current = {});
// What would be chosen if all that is not measured were as little as it can be: nothing where that is no other choice,
// so that measuring it is in vain.
std::optional<PolicyForecast> worth_measuring(const PolicySituation& situation, const PolicyChoice& current = {});

}  // namespace ranvier
