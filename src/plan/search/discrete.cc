#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>

#include "ranvier/design_search.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

constexpr double gap = 1e-6;
constexpr double whole = 1e-6;  // in links
constexpr int most_nodes = 20'000;

struct Node {
  double bound;
  std::vector<double> least = {};  // links, by dimension
  std::vector<double> most = {};   // infinite: not limited
  Design design = {};
  bool operator>(const Node& other) const { return bound > other.bound; }
};

class BranchAndBound {
 public:
  BranchAndBound(const DesignProblem& problem, const std::vector<double>& units) : problem_(problem), units_(units) {}

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
    open_.push(std::move(root));
    double proven = open_.top().bound;
    for (int nodes = 0; !open_.empty(); ++nodes) {
      Node node = open_.top();
      open_.pop();
      proven = node.bound;
      if (best_ && node.bound >= best_->objective * (1 - gap)) break;
      if (nodes == most_nodes)
        throw Error(ErrorKind::usage, fmt::format("{} choices of whole links were tried and leave a gap; take larger "
                                                  "links, or fewer dimensions of them",
                                                  most_nodes));
      round(node);
      branch(node);
    }
    if (!best_)
      throw Error(ErrorKind::usage,
                  "no whole numbers of links meet the constraints; loosen one, such as a "
                  "budget that is to be spent to the last GB/s");
    best_->lower_bound = std::min(best_->objective, open_.empty() ? best_->objective * (1 - gap) : proven);
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
      const auto limit = [&](Relation relation, double links) {
        limited.constraints.push_back({.text = fmt::format("whole links in dimension {}", i),
                                       .coefficients = one,
                                       .relation = relation,
                                       .limit = links * units_[i]});
      };
      if (node.least[i] == node.most[i]) {
        limit(Relation::equal, node.least[i]);
        continue;
      }
      if (node.least[i] > 0) limit(Relation::at_least, node.least[i]);
      if (std::isfinite(node.most[i])) limit(Relation::at_most, node.most[i]);
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
    keep(solve(rounded));
  }

  void keep(const std::optional<Design>& design) {
    if (design && !most_fractional(*design) && (!best_ || design->objective < best_->objective)) best_ = design;
  }

  void branch(const Node& node) {
    const auto which = most_fractional(node.design);
    if (!which) {
      keep(node.design);
      return;
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
      if (!best_ || child.bound < best_->objective * (1 - gap)) open_.push(std::move(child));
    }
  }

  const DesignProblem& problem_;
  const std::vector<double>& units_;
  std::priority_queue<Node, std::vector<Node>, std::greater<>> open_;
  std::optional<Design> best_;
};

}  // namespace

Design solve_discrete(const DesignProblem& problem, const std::vector<double>& unit_gbps) {
  return BranchAndBound(problem, unit_gbps).solve();
}

}  // namespace ranvier
