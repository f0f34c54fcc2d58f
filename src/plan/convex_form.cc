#include "plan/convex_form.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ranvier/error.h"

namespace ranvier::plan {
namespace {

using Eigen::Index;
using Eigen::VectorXd;
using Status = solver::LinearSolution::Status;

Index index(std::size_t i) { return static_cast<Index>(i); }
std::size_t at(Index i) { return static_cast<std::size_t>(i); }

[[noreturn]] void refuse(const std::string& sentence) { throw Error(ErrorKind::usage, sentence); }

class FormBuilder {
 public:
  explicit FormBuilder(const DesignProblem& problem)
      : problem_(problem),
        form_{.problem = problem,
              .priced = problem.objective == Objective::time_cost,
              .dimensions = index(problem.step.dimensions)} {}

  ConvexForm build() {
    check();
    name_sums();
    most_ = most_of_each(VectorXd::Constant(form_.bandwidths, INFINITY));
    choose_units(most_);
    lay_rows();
    refuse_conflicts();
    find_scales();
    build_terms();
    if (form_.terms.empty()) return std::move(form_);
    if (form_.priced) {
      if (may_cost_nothing()) {
        form_.pinned = pinned_to_zero(form_.allowed);
        refuse_starved_dimensions();  // of which no budget is the remedy
        refuse_vanishing_cost();
      }
      scale_by_cost(likely_cost());
    }
    form_.allowed = with_implied_equations(std::move(form_.allowed));
    form_.region = form_.priced ? homogeneous() : form_.allowed;
    form_.pinned = pinned_to_zero(form_.region);
    refuse_starved_dimensions();
    const auto inside = point_inside(form_.region, form_.pinned);
    if (!inside) throw Error(ErrorKind::internal, "a region of bandwidths has no inside; report it with its input");
    form_.start = form_.kept(*inside);
    build_program();
    return std::move(form_);
  }

 private:
  void check() const {
    const auto n = problem_.step.dimensions;
    if (n == 0 || n > 16) refuse(fmt::format("a design has 1 to 16 dimensions, not {}", n));
    if (problem_.dollars_per_gbps.size() != n)
      refuse(fmt::format("{} unit costs were given for {} dimensions", problem_.dollars_per_gbps.size(), n));
    if (problem_.step.cases.empty()) refuse("a step needs at least one case");
    for (const Constraint& constraint : problem_.constraints) check(constraint);
    const bool costs = std::ranges::any_of(problem_.dollars_per_gbps, [](double dollars) { return dollars > 0; });
    if (form_.priced && !costs)
      refuse("time x cost of a network that costs nothing is nothing; say what bandwidth costs");
  }

  static void check(const Constraint& constraint) {
    double most = 0;
    for (const double coefficient : constraint.coefficients) most = std::max(most, std::abs(coefficient));
    const double gbps = std::abs(constraint.limit) / most;
    if (constraint.limit != 0 && !(gbps >= least_gbps && gbps <= most_gbps))
      refuse(
          fmt::format("'{}' is about a bandwidth that is not between the {:g} and {:g} GB/s that are designed; write "
                      "another",
                      constraint.text, least_gbps, most_gbps));
  }

  void name_sums() {
    for (const auto& term : problem_.step.terms)
      for (const Load& load : term.loads) {
        const bool single = (load.dimensions & (load.dimensions - 1)) == 0;
        if (load.bytes > 0 && !single)
          form_.sums.try_emplace(load.dimensions, form_.dimensions + index(form_.sums.size()));
      }
    form_.bandwidths = form_.dimensions + index(form_.sums.size());
  }

  Index variable_of(std::uint32_t dimensions) const {
    if (const auto sum = form_.sums.find(dimensions); sum != form_.sums.end()) return sum->second;
    Index i = 0;
    while ((dimensions >> i & 1) == 0) ++i;
    return i;
  }

  // Bandwidths that may be of unlike magnitudes have units of their own, so that what counts as zero of each is a small
  // part of what there may be.
  void choose_units(VectorXd& most) {
    form_.units = VectorXd::Ones(form_.bandwidths);
    // What carries a load together is added up.
    for (std::size_t round = 0; round < form_.sums.size(); ++round)
      for (const auto& [dimensions, variable] : form_.sums) {
        double largest = 0;
        for (Index i = 0; i < form_.dimensions; ++i)
          if ((dimensions >> i & 1) != 0) largest = std::max(largest, most(i));
        for (Index i = 0; i < form_.dimensions; ++i)
          if ((dimensions >> i & 1) != 0) most(i) = largest;
        most(variable) = largest;
      }
    double largest = 0;
    double smallest = INFINITY;
    for (const double each : most) {
      if (!(each > 0 && std::isfinite(each))) continue;
      largest = std::max(largest, each);
      smallest = std::min(smallest, each);
    }
    if (!(largest > unlike * smallest)) return;
    for (Index i = 0; i < form_.bandwidths; ++i)
      if (most(i) > 0 && std::isfinite(most(i))) form_.units(i) = std::exp2(std::ilogb(most(i) / largest));
  }

  // What the constraints, one after another, leave at most of so much in each dimension; infinite where they say
  // nothing, and of no meaning where they contradict one another.
  VectorXd most_of_each(VectorXd most) const {
    const auto tighten = [&](const Constraint& constraint, double sign) {
      for (Index i = 0; i < form_.dimensions; ++i) {
        const double own = sign * constraint.coefficients[at(i)];
        if (!(own > 0)) continue;
        double left = sign * constraint.limit;
        for (Index j = 0; j < form_.dimensions; ++j)
          if (const double other = sign * constraint.coefficients[at(j)]; other < 0) left -= other * most(j);
        if (left >= 0) most(i) = std::min(most(i), left / own);
      }
    };
    for (Index round = 0; round < form_.dimensions; ++round)
      for (const Constraint& constraint : problem_.constraints) {
        if (constraint.relation != Relation::at_least) tighten(constraint, 1);
        if (constraint.relation != Relation::at_most) tighten(constraint, -1);
      }
    return most;
  }

  // By far: its slack would hide the digits of the others'. They imply it, so that no conflict needs it either.
  bool never_binds(const Row& row, const Constraint& constraint) const {
    if (row.equal) return false;
    double reach = 0;
    for (Index i = 0; i < form_.dimensions; ++i)
      if (row.coefficients(i) > 0) reach += std::abs(constraint.coefficients[at(i)]) * most_(i);
    return row.limit > unlike * reach;
  }

  void lay_rows() {
    form_.allowed.variables = form_.bandwidths;
    for (const Constraint& constraint : problem_.constraints) {
      Row row{.coefficients = VectorXd::Zero(form_.bandwidths),
              .equal = constraint.relation == Relation::equal,
              .limit = constraint.limit,
              .text = constraint.text};
      for (Index i = 0; i < form_.dimensions; ++i)
        row.coefficients(i) = constraint.coefficients[at(i)] * form_.units(i);
      if (constraint.relation == Relation::at_least) {
        row.coefficients *= -1;
        row.limit *= -1;
      }
      if (never_binds(row, constraint)) continue;
      // What counts as zero in a region is a number near 1 times 1e-8, whatever unit a constraint was written in.
      if (const double most = row.coefficients.cwiseAbs().maxCoeff(); most > 0) {
        row.coefficients /= most;
        row.limit /= most;
      }
      keep_tightest(std::move(row));
    }
    for (const auto& [dimensions, variable] : form_.sums) {
      Row row{
          .coefficients = VectorXd::Zero(form_.bandwidths), .equal = true, .limit = 0, .text = "a sum of bandwidths"};
      row.coefficients(variable) = 1;
      for (Index i = 0; i < form_.dimensions; ++i)
        if ((dimensions >> i & 1) != 0) row.coefficients(i) = -1;
      form_.allowed.rows.push_back(std::move(row));
    }
  }

  // Of limits of the same sum the tightest: each row is a linear program or more.
  void keep_tightest(Row row) {
    const auto same = std::ranges::find_if(form_.allowed.rows, [&](const Row& other) {
      return !other.equal && !row.equal && other.coefficients == row.coefficients;
    });
    if (same == form_.allowed.rows.end())
      form_.allowed.rows.push_back(std::move(row));
    else if (row.limit < same->limit)
      *same = std::move(row);
  }

  void refuse_conflicts() const {
    const auto rows = conflict(form_.allowed);
    if (rows.empty()) return;
    std::vector<std::string> texts;
    for (const std::size_t row : rows)
      if (std::find(texts.begin(), texts.end(), form_.allowed.rows[row].text) == texts.end())
        texts.push_back(form_.allowed.rows[row].text);
    if (texts.size() == 1) refuse(fmt::format("'{}' cannot be met by bandwidths that are at least 0", texts.front()));
    refuse(fmt::format("'{}' contradict one another; leave one of them out or change it", fmt::join(texts, "', '")));
  }

  void find_scales() {
    double dollars = 0;
    for (Index i = 0; i < form_.dimensions; ++i) dollars += problem_.dollars_per_gbps[at(i)] * form_.units(i);
    if (dollars > 0) form_.cost_scale = dollars / static_cast<double>(form_.dimensions);

    double most = 0;
    for (Index i = 0; i < form_.dimensions; ++i) {
      const auto found = minimise(form_.allowed, -VectorXd::Unit(form_.bandwidths, i));
      if (found.status != Status::unbounded) {
        most = std::max(most, found.x(i));
        continue;
      }
      // Where money counts its price is limit enough, and the cheapest bandwidths say which ones are near 1.
      if (!form_.priced || !(problem_.dollars_per_gbps[at(i)] > 0))
        refuse(fmt::format("nothing limits the bandwidth of dimension {}; add a budget, or a constraint on b{}", i, i));
      most = std::max(most, minimise(form_.allowed, form_.costs()).x.head(form_.dimensions).maxCoeff());
    }
    if (most > 0) form_.scale = most;
    apply_scale();
  }

  void apply_scale() {
    for (Row& row : form_.allowed.rows) row.limit /= form_.scale;
    // The time of an even split tells which times are near 1.
    std::vector<double> even;
    for (Index i = 0; i < form_.dimensions; ++i)
      even.push_back(form_.scale * form_.units(i) / static_cast<double>(form_.dimensions));
    if (const double time = step_ns(problem_.step, even); time > 0) form_.time_scale = time;
  }

  // What the best network costs, about: of twice as much for each step from the cheapest, where the step takes the
  // least time x cost if each bandwidth were bought by itself with all that is left. Bandwidths that are bought
  // together have a part of that each, so that this is off by no more than a number near that of the dimensions.
  double likely_cost() const {
    const auto cheapest = minimise(form_.allowed, form_.costs());
    const double least = cheapest.value * form_.scale * form_.cost_scale;
    double likely = least, best = INFINITY;
    std::vector<double> gbps(at(form_.dimensions));
    for (double cost = 2 * least; std::isfinite(cost); cost *= 2) {
      bool is_most = true;  // that can be bought
      for (Index i = 0; i < form_.dimensions; ++i) {
        const double dollars = problem_.dollars_per_gbps[at(i)];
        const double bought = std::max(cheapest.x(i) * form_.scale * form_.units(i), (cost - least) / dollars);
        is_most = is_most && bought >= most_(i);
        gbps[at(i)] = std::min(most_(i), bought);
      }
      const double each = cost * step_ns(problem_.step, gbps);
      // Of what is nearly as good the cheaper one: beyond it there is little to be gained, down to no money's worth.
      if (each < 0.99 * best) {
        best = each;
        likely = cost;
      }
      if (is_most || each > 64 * best) break;
    }
    return likely;
  }

  // So that at this cost all numbers are near 1: bandwidths as far as they may be bought for it, and its reciprocal.
  void scale_by_cost(double dollars) {
    if (!(dollars > 0)) return;
    VectorXd bought = most_;
    for (Index i = 0; i < form_.dimensions; ++i)
      bought(i) = std::min(most_(i), dollars / problem_.dollars_per_gbps[at(i)]);
    bought = most_of_each(std::move(bought));
    choose_units(bought);
    double largest = 0;
    for (const double each : bought)
      if (std::isfinite(each)) largest = std::max(largest, each);
    form_.scale = largest;
    form_.cost_scale = dollars / largest;
    form_.allowed = {};
    form_.terms = {};
    lay_rows();
    apply_scale();
    build_terms();
  }

  // Terms of the same proportions take proportional times, so that one stands for all.
  void build_terms() {
    const auto& step = problem_.step;
    std::map<std::vector<std::pair<Index, double>>, std::size_t> known;
    for (std::size_t k = 0; k < step.terms.size(); ++k) {
      std::map<Index, double> by_variable;
      double most = 0;
      for (const Load& load : step.terms[k].loads) {
        if (!(load.bytes > 0)) continue;
        const Index variable = variable_of(load.dimensions);
        double& bytes = by_variable[variable];
        bytes = std::max(bytes, load.bytes / form_.units(variable));
        most = std::max(most, bytes);
      }
      const bool used =
          std::any_of(step.cases.begin(), step.cases.end(), [&](const StepCase& one) { return one.weights[k] > 0; });
      if (most == 0 || !used) continue;
      std::vector<std::pair<Index, double>> proportions;
      proportions.reserve(by_variable.size());
      for (const auto& [variable, bytes] : by_variable) proportions.emplace_back(variable, bytes / most);
      const auto [found, added] = known.try_emplace(proportions, form_.terms.size());
      if (added) {
        form_.terms.push_back({.loads = {}, .weights = VectorXd::Zero(index(step.cases.size()))});
        for (const auto& [variable, bytes] : proportions) form_.terms.back().loads.push_back({variable, bytes});
      }
      for (std::size_t s = 0; s < step.cases.size(); ++s)
        form_.terms[found->second].weights(index(s)) +=
            step.cases[s].weights[k] * most / (form_.scale * form_.time_scale);
    }
  }

  // By what there is of bandwidths that cost anything, however little.
  bool may_cost_nothing() const {
    const VectorXd costs = form_.costs();
    const VectorXd costly = (costs.array() > 0).select(VectorXd::Ones(costs.size()), 0);
    return minimise(form_.allowed, costly).value <= 1e-9;
  }

  [[noreturn]] void refuse_vanishing_cost() const {
    const auto& dollars = problem_.dollars_per_gbps;
    if (std::ranges::count(dollars, 0.0) == 0)
      refuse(
          "time x cost keeps falling as all bandwidths shrink together: no constraint keeps any of them up; add a "
          "budget that is to be spent");
    const auto costs = std::ranges::find_if(dollars, [](double each) { return each > 0; }) - dollars.begin();
    refuse(
        fmt::format("time x cost never rises as the bandwidths that cost something shrink together: no constraint "
                    "keeps any of them up; add one, such as b{} >= 1",
                    costs));
  }

  Region homogeneous() const {
    const Index reciprocal = form_.bandwidths;
    Region result{.rows = {}, .variables = form_.bandwidths + 1};
    for (const Row& row : form_.allowed.rows) {
      Row turned = row;
      turned.coefficients.conservativeResize(result.variables);
      turned.coefficients(reciprocal) = -row.limit;
      turned.limit = 0;
      result.rows.push_back(std::move(turned));
    }
    Row one{.coefficients = VectorXd::Zero(result.variables), .equal = true, .limit = 1, .text = "cost"};
    one.coefficients.head(form_.bandwidths) = form_.costs();
    result.rows.push_back(std::move(one));
    return result;
  }

  void refuse_starved_dimensions() const {
    for (const auto& term : form_.terms)
      for (const auto& load : term.loads)
        if (form_.pinned[at(load.variable)]) {
          const auto texts = texts_that_starve(load.variable);
          const bool is_one = texts.size() == 1;
          refuse(fmt::format("{} {} {} no bandwidth, and the workload sends over it; loosen {}",
                             texts.empty() ? "the constraints" : fmt::format("'{}'", fmt::join(texts, "', '")),
                             is_one ? "leaves" : "leave",
                             load.variable < form_.dimensions
                                 ? fmt::format("dimension {} (b{})", load.variable, load.variable)
                                 : "several dimensions",
                             is_one ? "it" : "one of them"));
        }
  }

  // A smallest set of those that leave a variable nothing.
  std::vector<std::string> texts_that_starve(Index variable) const {
    constexpr double some = 1e-3;  // of numbers near 1
    Region with_some = form_.allowed;
    with_some.rows.push_back({.coefficients = -VectorXd::Unit(form_.bandwidths, variable), .limit = -some});
    std::vector<std::string> texts;
    for (const std::size_t row : conflict(with_some))
      if (row < form_.allowed.rows.size() && std::ranges::count(texts, form_.allowed.rows[row].text) == 0)
        texts.push_back(form_.allowed.rows[row].text);
    return texts;
  }

  void build_program() {
    const Index cases = index(problem_.step.cases.size());
    std::vector<Index> number(form_.pinned.size(), -1);
    Index count = 0;
    for (std::size_t i = 0; i < number.size(); ++i)
      if (!form_.pinned[i]) number[i] = count++;

    auto& program = form_.program;
    std::vector<VectorXd> weights;
    program.constant = VectorXd::Zero(cases);
    for (const auto& term : form_.terms) {
      program.terms.emplace_back();
      for (const auto& load : term.loads) program.terms.back().push_back({number[at(load.variable)], load.amount});
      weights.push_back(term.weights);
    }
    for (Index s = 0; s < cases; ++s) {
      const double constant = problem_.step.cases[at(s)].constant_ns / form_.time_scale;
      if (!form_.priced) {
        program.constant(s) = constant;
      } else if (constant > 0) {
        program.terms.push_back({{number[at(form_.bandwidths)], 1.0}});
        weights.emplace_back(constant * VectorXd::Unit(cases, s));
      }
    }
    program.weights.resize(cases, index(weights.size()));
    for (std::size_t k = 0; k < weights.size(); ++k) program.weights.col(index(k)) = weights[k];
    build_rows(count);
  }

  void build_rows(Index columns) {
    struct Rows {
      std::vector<VectorXd> coefficients;
      std::vector<double> limits;
      std::vector<std::size_t> numbers;
      Eigen::MatrixXd matrix(const std::vector<Index>& chosen, Index width) const {
        Eigen::MatrixXd result(index(chosen.size()), width);
        for (std::size_t r = 0; r < chosen.size(); ++r) result.row(index(r)) = coefficients[at(chosen[r])];
        return result;
      }
    };
    Rows equations;
    Rows inequalities;
    for (std::size_t r = 0; r < form_.region.rows.size(); ++r) {
      const Row& row = form_.region.rows[r];
      VectorXd coefficients = form_.kept(row.coefficients);
      if (coefficients.size() == 0 || coefficients.cwiseAbs().maxCoeff() == 0) continue;
      Rows& rows = row.equal ? equations : inequalities;
      rows.coefficients.push_back(std::move(coefficients));
      rows.limits.push_back(row.limit);
      rows.numbers.push_back(r);
    }
    const auto all = [](const Rows& rows) {
      std::vector<Index> result(rows.numbers.size());
      std::iota(result.begin(), result.end(), Index{0});
      return result;
    };
    const auto fill = [&](const Rows& rows, const std::vector<Index>& chosen, Eigen::MatrixXd& matrix, VectorXd& limits,
                          std::vector<std::size_t>& numbers) {
      matrix = rows.matrix(chosen, columns);
      limits.resize(index(chosen.size()));
      for (std::size_t r = 0; r < chosen.size(); ++r) {
        limits(index(r)) = rows.limits[at(chosen[r])];
        numbers.push_back(rows.numbers[at(chosen[r])]);
      }
    };
    auto& program = form_.program;
    fill(inequalities, all(inequalities), program.at_most, program.limit, form_.inequality_rows);
    fill(equations, independent_rows(equations.matrix(all(equations), columns)), program.equal, program.equal_to,
         form_.equation_rows);
  }

  static constexpr double unlike = 1024;  // times: magnitudes that are told apart

  const DesignProblem& problem_;
  ConvexForm form_;
  VectorXd most_ = {};  // by bandwidth, from single constraints
};

}  // namespace

VectorXd ConvexForm::costs() const {
  VectorXd result = VectorXd::Zero(bandwidths);
  for (Index i = 0; i < dimensions; ++i) result(i) = problem.dollars_per_gbps[at(i)] * units(i) / cost_scale;
  return result;
}

VectorXd ConvexForm::kept(const VectorXd& all) const {
  VectorXd result(all.size());
  Index count = 0;
  for (Index i = 0; i < all.size(); ++i)
    if (!pinned[at(i)]) result(count++) = all(i);
  result.conservativeResize(count);
  return result;
}

VectorXd ConvexForm::with_pinned(const VectorXd& kept) const {
  VectorXd result = VectorXd::Zero(region.variables);
  Index next = 0;
  for (Index i = 0; i < region.variables; ++i)
    if (!pinned[at(i)]) result(i) = kept(next++);
  return result;
}

ConvexForm convex_form(const DesignProblem& problem) { return FormBuilder(problem).build(); }

}  // namespace ranvier::plan
