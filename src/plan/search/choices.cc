#include "plan/search/choices.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace ranvier::plan {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double rounding = 1e-9;  // relative

bool is_better(const std::optional<Choices::Value>& one, const std::optional<Choices::Value>& than) {
  if (!one || !than) return one.has_value();
  return one->objective < than->objective * (1 - rounding) ||
         (one->objective <= than->objective * (1 + rounding) && one->dollars < than->dollars * (1 - rounding));
}

// Where a x + b / x <= c, for x > 0.
std::pair<double, double> where_at_most(double a, double b, double c) {
  c *= 1 + rounding;
  if (a <= 0) return {b > 0 ? b / c : 0, c >= 0 ? infinity : -infinity};
  const double root = c * c - 4 * a * b;
  if (c < 0 || root < 0) return {infinity, -infinity};
  const double most = (c + std::sqrt(root)) / (2 * a);
  return {most > 0 ? b / a / most : 0, most};
}

}  // namespace

Choices::Choices(const DesignProblem& problem, const std::vector<double>& units) : problem_(problem), units_(units) {
  for (std::size_t i = 0; i < units.size(); ++i) dollars_.push_back(problem.dollars_per_gbps[i] * units[i]);
  for (const Constraint& constraint : problem.constraints)
    for (const double sign : {1.0, -1.0}) {
      const auto no_such = sign > 0 ? Relation::at_least : Relation::at_most;
      if (constraint.relation == no_such) continue;
      Row row{.coefficients = {}, .limit = sign * constraint.limit};
      double size = std::abs(constraint.limit);
      for (std::size_t i = 0; i < units.size(); ++i) {
        row.coefficients.push_back(sign * constraint.coefficients[i] * units[i]);
        size = std::max(size, std::abs(row.coefficients.back()));
      }
      row.limit += rounding * size;
      rows_.push_back(std::move(row));
    }
}

std::vector<double> Choices::bandwidth(const Links& links) const {
  std::vector<double> gbps;
  gbps.reserve(links.size());
  for (std::size_t i = 0; i < links.size(); ++i) gbps.push_back(links[i] * units_[i]);
  return gbps;
}

std::optional<Choices::Value> Choices::value(const Links& links) const {
  for (const Row& row : rows_)
    if (std::inner_product(links.begin(), links.end(), row.coefficients.begin(), 0.0) > row.limit) return std::nullopt;
  const double time = step_ns(problem_.step, bandwidth(links));
  if (!std::isfinite(time)) return std::nullopt;
  const double dollars = std::inner_product(links.begin(), links.end(), dollars_.begin(), 0.0);
  return Value{problem_.objective == Objective::time ? time : time * dollars / time_cost_scale, dollars};
}

// Of millions of links no single one is worth anything, and as many moves would be.
constexpr int most_moves = 1000;

void Choices::fill(Links& links, std::optional<Value>& reached) const {
  const std::size_t n = links.size();
  int left = most_moves;
  for (bool moves = true; moves && left > 0; --left) {
    moves = false;
    Links best = links;
    // The slowest loads of a collective wait for each other: one link more may help no more than none.
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = i; j < n; ++j) {
        Links more = links;
        ++more[i];
        if (j > i) ++more[j];
        const auto found = value(more);
        if (!is_better(found, reached)) continue;
        reached = found;
        best = std::move(more);
        moves = true;
      }
    links = std::move(best);
  }
}

Choices::Links Choices::improved(Links links) const {
  auto reached = value(links);
  fill(links, reached);
  int left = most_moves;
  for (bool moves = true; moves && left > 0; --left) {
    moves = false;
    for (std::size_t i = 0; i < links.size(); ++i) {
      if (links[i] < 1) continue;
      Links other = links;
      --other[i];
      auto found = value(other);
      fill(other, found);
      if (!is_better(found, reached)) continue;
      reached = found;
      links = std::move(other);
      moves = true;
    }
  }
  return links;
}

// For time the proof says, with q_i bytes and a price of a_i in dimension i, that a step takes at least
//     constant + sum over i of q_i / b_i + a_i b_i,
// of which each part is at least 2 sqrt(q_i a_i), whatever b_i. Dimensions that are taken have their own part, and of
// each term the slowest of their loads, by all of those loads' weights. For time x cost it is the product
//     (constant + sum of q_i / b_i) (sum of dollars_i b_i),
// and what dimensions can add is bounded by Cauchy: (sqrt of the product so far + sum of sqrt(q_i dollars_i))^2.
class Choices::Walk {
 public:
  Walk(const Choices& all, const Certificate& proof, const Links& least, const Links& most, double worst,
       const Keep& keep)
      : all_(all), keep_(keep), priced_(all.problem_.objective == Objective::time_cost), worst_(worst) {
    read(proof);
    const std::size_t n = all.units_.size();
    links_.assign(n, 0);
    bounds_ = {least, most};
    // A first look at what each dimension may have, if the others had what suits them best.
    order_.resize(n);
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    const double others = std::accumulate(least_part_.begin(), least_part_.end(), 0.0);
    for (std::size_t i = 0; i < n; ++i) {
      const auto [first, last] = range(i, start_, others - least_part_[i]);
      bounds_.first[i] = first;
      bounds_.second[i] = last;
    }
    std::ranges::stable_sort(order_, {}, [&](std::size_t i) { return bounds_.second[i] - bounds_.first[i]; });
    lay_levels();
  }

  bool run() {
    // Of the last dimension the best is found by halves.
    double choices = 1;
    for (std::size_t level = 0; level < order_.size(); ++level) {
      const double range = std::max(0.0, bounds_.second[order_[level]] - bounds_.first[order_[level]] + 1);
      choices *= level + 1 < order_.size() ? range : 1 + std::log2(std::max(1.0, range));
    }
    // A part of a box of so many dimensions: what is good lies about in a ball.
    const auto n = static_cast<double>(order_.size() - 1);
    const double ball = std::pow(3.14159 / 4, n / 2) / std::tgamma(n / 2 + 1);
    return choices * ball <= 4.0 * most_tried && go_on(0);
  }

 private:
  static constexpr int most_tried = 500'000;

  struct Bound {
    double time = 0;   // what is proven of the dimensions so far, without prices
    double money = 0;  // prices of their bandwidth, or dollars
  };
  struct At {
    Bound bound;
    std::vector<double> slowest = {};  // by term: of the loads of those dimensions
    std::vector<double> used = {};     // by row
  };
  struct Load {
    std::size_t term;
    double bytes;
    double weight;
  };

  void read(const Certificate& proof) {
    const std::size_t n = all_.units_.size();
    std::vector<double> bytes(proof.step.dimensions, 0);
    std::vector<double> prices(proof.step.dimensions, 0);
    loads_.resize(n);
    terms_ = proof.step.terms.size();
    for (std::size_t k = 0; k < terms_; ++k)
      for (std::size_t l = 0; l < proof.step.terms[k].loads.size(); ++l) {
        const Load load{k, proof.step.terms[k].loads[l].bytes, proof.load_weights[k][l]};
        const auto variable = static_cast<std::size_t>(std::countr_zero(proof.step.terms[k].loads[l].dimensions));
        bytes[variable] += load.weight * load.bytes;
        if (variable < n) loads_[variable].push_back(load);
      }
    // Of time x cost the constants are over the last variable.
    for (std::size_t s = 0; s < proof.case_weights.size(); ++s)
      start_.time += proof.case_weights[s] * proof.step.cases[s].constant_ns;
    if (priced_) start_.time += bytes.back();
    for (std::size_t j = 0; j < proof.constraints.size(); ++j) {
      if (!priced_) start_.money -= proof.prices[j] * proof.constraints[j].limit;
      for (std::size_t i = 0; i < prices.size(); ++i)
        prices[i] += proof.prices[j] * proof.constraints[j].coefficients[i];
    }
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (priced_ && i >= n) break;  // sums of bandwidths, and what is no bandwidth: worth nothing here
      if (priced_) prices[i] = all_.problem_.dollars_per_gbps[i];
      prices[i] = std::max(0.0, prices[i]);
      least_part_.push_back((priced_ ? 1 : 2) * std::sqrt(bytes[i] * prices[i]));
    }
    bytes_ = std::move(bytes);
    prices_ = std::move(prices);
    if (priced_) worst_ *= time_cost_scale;
    // What several dimensions carry together has no part of its own that is told before all of them are known.
    sums_ = std::accumulate(least_part_.begin() + static_cast<std::ptrdiff_t>(n), least_part_.end(), 0.0);
  }

  void lay_levels() {
    const std::size_t n = order_.size();
    at_.assign(n + 1, {start_, std::vector<double>(terms_, 0), std::vector<double>(all_.rows_.size(), 0)});
    weights_.assign(n + 1, std::vector<double>(terms_, 0));
    rest_.assign(n + 1, sums_);
    rest_used_.assign(n + 1, std::vector<double>(all_.rows_.size(), 0));
    for (std::size_t level = 0; level < n; ++level) {
      weights_[level + 1] = weights_[level];
      for (const Load& load : loads_[order_[level]]) weights_[level + 1][load.term] += load.weight;
    }
    for (std::size_t level = n; level-- > 0;) {
      const std::size_t i = order_[level];
      rest_[level] = rest_[level + 1] + least_part_[i];
      for (std::size_t r = 0; r < all_.rows_.size(); ++r) {
        const double each = all_.rows_[r].coefficients[i];
        const double least = each == 0 ? 0 : each * (each > 0 ? bounds_.first[i] : bounds_.second[i]);
        rest_used_[level][r] = rest_used_[level + 1][r] + least;
      }
    }
  }

  // Of a dimension's links, behind what is bounded already; `others`: the least part of all that are not.
  std::pair<double, double> range(std::size_t i, const Bound& before, double others) const {
    std::pair<double, double> gbps;
    if (priced_) {
      // (time + q / b) (money + u b) <= room
      const double room = std::max(0.0, std::sqrt(worst_) - others);
      const double q = bytes_[i], u = prices_[i];
      gbps = where_at_most(before.time * u, q * before.money, room * room - before.time * before.money - q * u);
    } else {
      gbps = where_at_most(prices_[i], bytes_[i], worst_ - before.time - before.money - others);
    }
    const double unit = all_.units_[i];
    return {std::max(bounds_.first[i], std::ceil(gbps.first / unit * (1 - rounding))),
            std::min(bounds_.second[i], std::floor(gbps.second / unit * (1 + rounding)))};
  }

  // False where that is too much.
  bool go_on(std::size_t level) {
    const std::size_t i = order_[level];
    auto [first, last] = range(i, at_[level].bound, rest_[level + 1]);
    if (level + 1 == order_.size()) {
      for (std::size_t r = 0; r < all_.rows_.size(); ++r) {
        const double each = all_.rows_[r].coefficients[i];
        const double most = (all_.rows_[r].limit - at_[level].used[r]) / each;
        if (each > 0) last = std::min(last, std::floor(most * (1 + rounding)));
        if (each < 0) first = std::max(first, std::ceil(most - rounding * std::abs(most)));
      }
      if (!(last >= first)) return true;
      constexpr double most_links = 1e9;
      return last - first <= most_links && halve(i, first, last, time_with(i, last));
    }
    if (!(last - first <= most_tried)) return !(last >= first);
    for (links_[i] = first; links_[i] <= last; ++links_[i]) {
      if (++tried_ > most_tried) return false;
      if (may_be_good(level, i) && !go_on(level + 1)) return false;
    }
    return true;
  }

  double time_with(std::size_t i, double links) {
    links_[i] = links;
    return step_ns(all_.problem_.step, all_.bandwidth(links_));
  }

  // Of the last dimension. With more links a step takes no more time and no less money: from the first to the last
  // number of them no less than the time with the last for the money of the first.
  bool halve(std::size_t i, double first, double last, double time_of_last) {
    if (++tried_ > most_tried) return false;
    links_[i] = first;
    const double dollars = std::inner_product(links_.begin(), links_.end(), all_.dollars_.begin(), 0.0);
    if (time_of_last * (priced_ ? dollars : 1) > worst_ * (1 + rounding)) return true;
    // Of those that take as long the cheapest.
    if (!priced_ && first < last && time_with(i, first) <= time_of_last * (1 + rounding)) last = first;
    if (first == last) {
      links_[i] = first;
      if (const auto found = all_.value(links_)) worst_ = keep_(links_, *found) * (priced_ ? time_cost_scale : 1);
      return true;
    }
    const double middle = std::floor((first + last) / 2);
    return halve(i, middle + 1, last, time_of_last) && halve(i, first, middle, time_with(i, middle));
  }

  // Whether anything may that begins so.
  bool may_be_good(std::size_t level, std::size_t i) {
    const At& before = at_[level];
    At& now = at_[level + 1];
    for (std::size_t r = 0; r < all_.rows_.size(); ++r) {
      now.used[r] = before.used[r] + all_.rows_[r].coefficients[i] * links_[i];
      if (now.used[r] + rest_used_[level + 1][r] > all_.rows_[r].limit) return false;
    }
    const double gbps = links_[i] * all_.units_[i];
    now.slowest = before.slowest;
    for (const Load& load : loads_[i]) now.slowest[load.term] = std::max(now.slowest[load.term], load.bytes / gbps);
    now.bound.time =
        start_.time + std::inner_product(now.slowest.begin(), now.slowest.end(), weights_[level + 1].begin(), 0.0);
    now.bound.money = before.bound.money + prices_[i] * gbps;
    const double rest = rest_[level + 1];
    if (!priced_) return now.bound.time + now.bound.money + rest <= worst_ * (1 + rounding);
    const double root = std::sqrt(now.bound.time * now.bound.money) + rest;
    return root * root <= worst_ * (1 + rounding);
  }

  const Choices& all_;
  const Keep& keep_;
  const bool priced_;
  double worst_;
  Bound start_;
  std::size_t terms_ = 0;
  std::vector<std::vector<Load>> loads_;  // by dimension
  std::vector<double> bytes_, prices_;    // by variable of the proof: q and a
  std::vector<double> least_part_;        // likewise
  double sums_ = 0;
  std::pair<Links, Links> bounds_;
  std::vector<std::size_t> order_;  // of dimensions, by level
  // By level, of those before it or from it on:
  std::vector<At> at_;
  std::vector<std::vector<double>> weights_;    // of each term's loads
  std::vector<double> rest_;                    // least parts
  std::vector<std::vector<double>> rest_used_;  // of each row, at least
  Links links_;
  int tried_ = 0;
};

bool Choices::each(const Certificate& proof, const Links& least, const Links& most, double worst,
                   const Keep& keep) const {
  return Walk(*this, proof, least, most, worst, keep).run();
}

}  // namespace ranvier::plan
