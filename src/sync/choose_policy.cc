// What the candidates take for B samples of W workers, speeds v_i, t = B / sum v (the time when nobody waits for
// anybody), A an average of all parameters among everybody, a inside nodes, p and f the share and the factor of late
// steps:
//
//   bsp, even shares         max_i (B/W) / v_i · late(W) + A - h
//   bsp, shares by speed     t · late(W) + A - h
//   node:16                  t · late(largest node) + a + A / 16
//   group                    max(t · late(largest group) + average inside a group, push, groups · served)
//   async                    max(B / sum_i ((B/W) / ((B/W) / v_i · late(1) + push)), W · served)
//
// late(n) = 1 + (1 - (1 - p)^n) (f - 1): the slowest of n. h of A hides behind backward. p is what has been measured
// less its standard error, since lateness only ever speaks for averaging less exactly, and few steps know little of it.
//
// Margins: what is asked of a policy that averages less exactly. They are judgements, near what this project's own runs
// lose (docs/benchmarks.md): parameters of nodes every 16 steps 5 %, groups 5 %, single asynchronous workers, whose
// gradients are stale by W - 1 pushes and which needed 1.2 to 1.6 times the samples of bsp, 25 %.
#include "ranvier/choose_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "ranvier/error.h"
#include "ranvier/sync.h"

namespace ranvier {
namespace {

constexpr double node_margin = 0.05;
constexpr double group_margin = 0.05;
constexpr double async_margin = 0.25;
constexpr double to_change = 0.1;
constexpr double unequal = 1.2;  // speeds that differ by less are one speed, measured

std::size_t largest(std::span<const int> groups) {
  std::map<int, std::size_t> sizes;
  for (const int group : groups) ++sizes[group];
  return std::ranges::max_element(sizes, {}, [](const auto& each) { return each.second; })->second;
}

std::size_t count(std::span<const int> groups) {
  const std::vector<int> sorted(groups.begin(), groups.end());
  return static_cast<std::size_t>(*std::ranges::max_element(sorted)) + 1;
}

class Forecast {
 public:
  explicit Forecast(const PolicySituation& situation)
      : now_(situation),
        world_(static_cast<double>(situation.speeds.size())),
        own_(situation.samples / world_),
        unhindered_(situation.samples / std::accumulate(situation.speeds.begin(), situation.speeds.end(), 0.0)),
        slowest_(own_ / *std::ranges::min_element(situation.speeds)),
        is_unequal_(*std::ranges::max_element(situation.speeds) / *std::ranges::min_element(situation.speeds) >
                    unequal),
        late_share_(std::max(situation.late_share - std::sqrt(situation.late_share * (1 - situation.late_share) /
                                                              std::max(situation.late_of, 1.0)),
                             0.0)) {}

  std::vector<PolicyForecast> all() const {
    const double exposed = std::max(now_.between_seconds - now_.hidden_seconds, 0.0);
    std::vector<PolicyForecast> list{{.sync = "bsp", .seconds = slowest_ * late(world_) + exposed}};
    if (shares_by_speed())
      list.push_back({.sync = "bsp", .split_by_speed = true, .seconds = shared() * late(world_) + exposed});
    if (world_ == 1) return list;
    const std::size_t nodes = count(now_.nodes);
    if (nodes > 1)
      list.push_back({.sync = fmt::format("node:{}", node_period),
                      .split_by_speed = shares_by_speed(),
                      .seconds = shared() * late(static_cast<double>(largest(now_.nodes))) + now_.inside_seconds +
                                 now_.between_seconds / node_period,
                      .margin = node_margin,
                      .at_least = !now_.measured.inside});
    if (!now_.takes_servers) return list;
    const bool pushes_unknown = !now_.measured.push || !now_.measured.served;
    const auto groups = group_by_speed(now_.speeds, {});
    if (count(groups) > 1)
      list.push_back(
          {.sync = "group",
           .seconds = std::max({shared() * late(static_cast<double>(largest(groups))) + inside(groups),
                                now_.push_seconds, static_cast<double>(count(groups)) * now_.served_seconds}),
           .margin = group_margin,
           .at_least = pushes_unknown || (stay_inside(groups) && !now_.measured.inside)});
    double rate = 0;  // samples a second
    for (const double speed : now_.speeds) rate += own_ / (own_ / speed * late(1) + now_.push_seconds);
    list.push_back({.sync = "async",
                    .seconds = std::max(now_.samples / rate, world_ * now_.served_seconds),
                    .margin = async_margin,
                    .at_least = pushes_unknown});
    return list;
  }

 private:
  // Nobody is shared out finer than it is measured: equal workers keep equal shares.
  bool shares_by_speed() const { return is_unequal_ && now_.takes_shares; }
  double shared() const { return shares_by_speed() ? unhindered_ : slowest_; }
  double late(double workers) const { return 1 + (1 - std::pow(1 - late_share_, workers)) * (now_.late_factor - 1); }
  // An average inside a group, which is as slow as the links that it crosses.
  double inside(const std::vector<int>& groups) const {
    return stay_inside(groups) ? now_.inside_seconds : now_.between_seconds;
  }
  bool stay_inside(const std::vector<int>& groups) const {
    std::map<int, int> home;
    for (std::size_t rank = 0; rank < groups.size(); ++rank)
      if (home.try_emplace(groups[rank], now_.nodes[rank]).first->second != now_.nodes[rank]) return false;
    return true;
  }

  const PolicySituation& now_;
  const double world_;
  const double own_;
  const double unhindered_;
  const double slowest_;
  const bool is_unequal_;
  const double late_share_;
};

std::string name_of(const PolicyForecast& each) {
  return each.sync + (each.split_by_speed ? " with shares by speed" : "");
}

struct Chosen {
  const PolicyForecast& taken;
  const PolicyForecast& best;   // what would take the least time …
  std::string_view stays = {};  // … and why it is not taken
};

// `also_bounds`: of these forecasts those too that hang on what has not been measured.
Chosen choose(std::span<const PolicyForecast> all, const PolicySituation& now, const PolicyChoice& current,
              bool also_bounds) {
  const PolicyForecast* best = nullptr;
  for (const auto& each : all)
    if ((also_bounds || !each.at_least) && (best == nullptr || each.cost() < best->cost())) best = &each;
  auto in_use = std::ranges::find_if(all, [&](const PolicyForecast& each) {
    return each.sync == current.sync && each.split_by_speed == current.split_by_speed;
  });
  // Which shares are considered follows how unequal speeds are just now; others are no other policy.
  if (in_use == all.end()) in_use = std::ranges::find(all, current.sync, &PolicyForecast::sync);
  if (in_use != all.end() && in_use->cost() <= best->cost() * (1 + to_change))
    return {*in_use, *best, "too near to change for"};
  const PolicyForecast& stays = in_use != all.end() ? *in_use : all.front();
  if (stays.cost() <= best->cost() * (1 + now.doubt))
    return {stays, *best, "nearer than what is measured so early may be wrong by"};
  if ((stays.cost() - best->cost()) * now.steps_left <= now.change_seconds)
    return {stays, *best, "not worth a change for the steps that are left"};
  return {*best, *best};
}

// `wished`: the choice among bounds, too.
std::string reason_of(const PolicySituation& now, const PolicyForecast& taken, const Chosen& wished,
                      std::span<const PolicyForecast> all) {
  std::string others;
  for (const auto& each : all)
    if (!(each == taken))
      others +=
          fmt::format("{}{} {}{:.1f}{}", others.empty() ? "" : ", ", name_of(each), each.at_least ? "at least " : "",
                      each.seconds * 1e3, each.margin > 0 ? fmt::format(" counted as {:.1f}", each.cost() * 1e3) : "");
  if (!wished.stays.empty() && !(wished.best == taken))
    others += fmt::format("; {} is {}", name_of(wished.best), wished.stays);
  return fmt::format(
      "{} takes {:.1f} ms for a step's samples{}; speeds differ {:.1f} times, {:.0f} % of steps are late "
      "{:.1f} times, an average takes {}{:.1f} ms inside nodes and {:.1f} among all",
      name_of(taken), taken.seconds * 1e3, others.empty() ? "" : fmt::format(" ({})", others),
      *std::ranges::max_element(now.speeds) / *std::ranges::min_element(now.speeds), now.late_share * 100,
      now.late_factor, now.measured.inside ? "" : "at least ", now.inside_seconds * 1e3, now.between_seconds * 1e3);
}

}  // namespace

std::vector<PolicyForecast> forecast_policies(const PolicySituation& situation) {
  if (situation.speeds.empty() || situation.nodes.size() != situation.speeds.size() ||
      std::ranges::any_of(situation.speeds, [](double speed) { return !(speed > 0) || !std::isfinite(speed); }))
    throw Error(ErrorKind::usage, "policies are chosen by the speed, above 0, and the node of each worker");
  return Forecast(situation).all();
}

PolicyChoice choose_policy(const PolicySituation& situation, const PolicyChoice& current) {
  const auto all = forecast_policies(situation);
  const PolicyForecast& taken = choose(all, situation, current, false).taken;
  return {.sync = taken.sync,
          .split_by_speed = taken.split_by_speed,
          .reason = reason_of(situation, taken, choose(all, situation, current, true), all)};
}

std::optional<PolicyForecast> worth_measuring(const PolicySituation& situation, const PolicyChoice& current) {
  const auto all = forecast_policies(situation);
  const PolicyForecast& taken = choose(all, situation, current, true).taken;
  if (!taken.at_least) return std::nullopt;
  return taken;
}

}  // namespace ranvier
