#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "plan/search/choices.h"
#include "ranvier/design_search.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

constexpr double gap = 1e-6;
constexpr double equal = 1e-9;  // relative: objectives that are so near are a tie
constexpr double whole = 1e-6;  // in links
constexpr int most_nodes = 20'000;
constexpr int most_ties = 40;  // nodes that can only make it cheaper
constexpr int most_looks = 8;  // nodes, after so many of which the choices in one are too many it is so in all

struct Node {
  double bound;
  std::vector<double> least = {};  // links, by dimension
  std::vector<double> most = {};   // infinite: not limited
  Design design = {};
  bool operator>(const Node& other) const { return bound > other.bound; }
};

// Terms of the same proportions take proportional times: one for all, since it is asked for often.
StepTime merged(const StepTime& step) {
  StepTime result{.dimensions = step.dimensions, .terms = {}, .cases = step.cases};
  for (StepCase& one : result.cases) one.weights.clear();
  std::map<std::vector<std::pair<std::uint32_t, double>>, std::size_t> known;
  for (std::size_t k = 0; k < step.terms.size(); ++k) {
    double most = 0;
    for (const Load& load : step.terms[k].loads) most = std::max(most, load.bytes);
    if (!(most > 0)) continue;
    std::vector<std::pair<std::uint32_t, double>> proportions;
    TrafficTerm term;
    for (const Load& load : step.terms[k].loads) {
      if (!(load.bytes > 0)) continue;
      proportions.emplace_back(load.dimensions, load.bytes / most);
      term.loads.push_back({load.dimensions, load.bytes / most});
    }
    const auto [same, is_new] = known.try_emplace(std::move(proportions), result.terms.size());
    if (is_new) {
      result.terms.push_back(std::move(term));
      for (StepCase& one : result.cases) one.weights.push_back(0);
    }
    for (std::size_t s = 0; s < step.cases.size(); ++s)
      result.cases[s].weights[same->second] += step.cases[s].weights[k] * most;
  }
  return result;
}

class BranchAndBound {
 public:
  BranchAndBound(const DesignProblem& problem, const std::vector<double>& units) : problem_(problem), units_(units) {
    problem_.step = merged(problem.step);
  }

  Design solve() {
    const std::size_t n = units_.size();
    Node root{.bound = 0, .least = std::vector<double>(n, 0), .most = std::vector<double>(n, INFINITY), .design = {}};
    for (const TrafficTerm& term : problem_.step.terms)
      for (const Load& load : term.loads)
        for (std::size_t i = 0; i < n; ++i)
          if (load.bytes > 0 && load.dimensions == std::uint32_t{1} << i && units_[i] > 0) root.least[i] = 1;
    root.design = ranvier::solve(with_limits(root));  // whatever is wrong with the problem itself is said here
    root.bound = root.design.lower_bound;
    const Certificate of_all = root.design.certificate;
    const bool has_proof = of_all.scale > 0 && !of_all.step.terms.empty();
    if (has_proof && std::ranges::all_of(units_, [](double unit) { return unit > 0; }))
      choices_.emplace(problem_, units_);
    open_.push(std::move(root));
    int ties = 0;
    for (int nodes = 0; !open_.empty(); ++nodes) {
      Node node = open_.top();
      open_.pop();
      if (!is_worth(node)) {
        leave(node);
        continue;
      }
      // Best first: so are all that are left then.
      if (is_tie(node) && ++ties > most_ties) {
        leave(node);
        break;
      }
      if (nodes == most_nodes)
        throw Error(ErrorKind::usage, fmt::format("{} choices of whole links were tried and leave a gap; take larger "
                                                  "links, or fewer dimensions of them",
                                                  most_nodes));
      round(node);
      const bool looks = too_many_ < most_looks;
      if (!looks || !look_through(node)) branch(node);
    }
    if (!best_)
      throw Error(ErrorKind::usage,
                  "no whole numbers of links meet the constraints; loosen one, such as a "
                  "budget that is to be spent to the last GB/s");
    if (best_links_) best_ = ranvier::solve(with_limits({.bound = 0, .least = *best_links_, .most = *best_links_}));
    best_->lower_bound = std::min(best_->objective, left_);
    // The choice's own is of nothing but that choice.
    best_->certificate = of_all;
    return *best_;
  }

 private:
  DesignProblem with_limits(const Node& node) const {
    DesignProblem limited = problem_;
    for (std::size_t i = 0; i < units_.size(); ++i) {
      std::vector<double> one(units_.size(), 0);
      one[i] = 1;
      const auto limit = [&](Relation relation, const char* sign, double links) {
        const double gbps = links * units_[i];
        limited.constraints.push_back({.text = fmt::format("b{} {} {:g} (whole links of --link-gbps)", i, sign, gbps),
                                       .coefficients = one,
                                       .relation = relation,
                                       .limit = gbps});
      };
      if (node.least[i] == node.most[i]) {
        limit(Relation::equal, "=", node.least[i]);
        continue;
      }
      if (node.least[i] > 0) limit(Relation::at_least, ">=", node.least[i]);
      if (std::isfinite(node.most[i])) limit(Relation::at_most, "<=", node.most[i]);
    }
    return limited;
  }

  // None where the limits leave nothing.
  std::optional<Design> solve(const Node& node) const {
    try {
      return ranvier::solve(with_limits(node));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;
      return std::nullopt;
    }
  }

  std::optional<std::size_t> most_fractional(const Design& design) const {
    std::optional<std::size_t> which;
    double farthest = whole;
    for (std::size_t i = 0; i < units_.size(); ++i) {
      if (units_[i] <= 0) continue;
      const double links = design.bandwidth_gbps[i] / units_[i];
      const double distance = std::abs(links - std::round(links));
      if (distance <= farthest) continue;
      farthest = distance;
      which = i;
    }
    return which;
  }

  // Fewer links than the relaxed optimum has, never more than any limit allows: often a good start.
  void round(const Node& node) {
    Node rounded = node;
    for (std::size_t i = 0; i < units_.size(); ++i)
      if (units_[i] > 0)
        rounded.least[i] = rounded.most[i] =
            std::max(node.least[i], std::floor(node.design.bandwidth_gbps[i] / units_[i] + whole));
    if (!choices_) return keep(solve(rounded));
    const auto links = choices_->improved(rounded.least);
    if (const auto value = choices_->value(links)) keep(links, *value);
  }

  // Through all choices in it that may be better; false where they are too many.
  bool look_through(const Node& node) {
    if (!choices_ || !best_) return false;
    const bool all = choices_->each(node.design.certificate, node.least, node.most, least_ * (1 + equal),
                                    [this](const auto& links, const auto& value) {
                                      keep(links, value);
                                      return least_ * (1 + equal);
                                    });
    if (!all) ++too_many_;
    return all;
  }

  bool is_better(double objective, double dollars) const {
    if (!best_ || objective <= best_->objective * (1 - equal)) return true;
    return objective <= least_ * (1 + equal) && dollars < best_->cost_usd * (1 - equal);
  }

  void keep(const std::optional<Design>& design) {
    if (!design || most_fractional(*design) || !is_better(design->objective, design->cost_usd)) return;
    best_ = design;
    best_links_.reset();
    least_ = std::min(least_, design->objective);
  }
  void keep(const plan::Choices::Links& links, const plan::Choices::Value& value) {
    if (!is_better(value.objective, value.dollars)) return;
    best_ = Design{.cost_usd = value.dollars, .objective = value.objective};
    best_links_ = links;
    least_ = std::min(least_, value.objective);
  }

  // Nothing in it is better by more than the gap, and something may be as good.
  bool is_tie(const Node& node) const { return best_ && node.bound >= least_ * (1 - gap); }

  bool is_worth(const Node& node) const {
    if (!best_ || node.bound < least_ * (1 - gap)) return true;
    return node.bound <= least_ * (1 + equal) && least_cost(node) < best_->cost_usd * (1 - equal);
  }

  // Of the designs in a node that are as good as the best known, about. Where time is the objective the node's own is
  // the cheapest of its optimum; time that is left, however little, saves as much as its square root.
  double least_cost(const Node& node) const {
    double dollars = 0;
    for (std::size_t i = 0; i < units_.size(); ++i) dollars += node.least[i] * units_[i] * problem_.dollars_per_gbps[i];
    if (problem_.objective == Objective::time_cost) return dollars;
    const double left = std::max(0.0, least_ * (1 + equal) - node.bound) / least_;
    return std::max(dollars, node.design.cost_usd * (1 - 2 * std::sqrt(left)));
  }

  void leave(const Node& node) { left_ = std::min(left_, node.bound); }

  void branch(const Node& node) {
    const auto which = most_fractional(node.design);
    if (!which) {
      keep(node.design);
      // Others in it are no better, and none as good is cheaper.
      return leave(node);
    }
    const double links = node.design.bandwidth_gbps[*which] / units_[*which];
    for (const bool up : {false, true}) {
      Node child = node;
      (up ? child.least : child.most)[*which] = up ? std::ceil(links) : std::floor(links);
      if (child.least[*which] > child.most[*which]) continue;
      const auto design = solve(child);
      if (!design) continue;
      child.design = *design;
      child.bound = std::max(node.bound, design->lower_bound);
      is_worth(child) ? open_.push(std::move(child)) : leave(child);
    }
  }

  DesignProblem problem_;
  const std::vector<double>& units_;
  std::optional<plan::Choices> choices_;  // where there are links of all dimensions
  std::priority_queue<Node, std::vector<Node>, std::greater<>> open_;
  std::optional<Design> best_;
  std::optional<plan::Choices::Links> best_links_;  // what it is, where nothing but its worth is known of it
  double least_ = INFINITY;                         // objective so far: that of the best, or less by `equal`
  int too_many_ = 0;                                // nodes of more choices than are looked through
  double left_ = INFINITY;                          // least bound of the nodes that nobody looked into
};

}  // namespace

Design solve_discrete(const DesignProblem& problem, const std::vector<double>& unit_gbps) {
  return BranchAndBound(problem, unit_gbps).solve();
}

}  // namespace ranvier
