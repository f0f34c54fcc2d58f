// The solver against NLopt's sequential quadratic programming (D. Kraft, 1988) on problems drawn at random.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "plan/certificate.h"
#include "plan/libra_cases.h"
#include "plan/nlopt_peer.h"
#include "ranvier/design_search.h"
#include "ranvier/error.h"
#include "support/refusal.h"

namespace ranvier {
namespace {

struct Random {
  std::mt19937_64 bits;
  double between(double least, double most) { return std::uniform_real_distribution<double>(least, most)(bits); }
  int one_of(int count) { return std::uniform_int_distribution<int>(0, count - 1)(bits); }
};

// Dimensions, terms, cases and sometimes constraints beside the budget; bytes over several orders of magnitude.
DesignProblem draw(Random& random, Objective objective) {
  DesignProblem problem{.step = {}, .objective = objective};
  const std::size_t n = 1 + random.one_of(5);
  const double budget = std::exp(random.between(0, 8));
  problem.step.dimensions = n;
  const int terms = 1 + random.one_of(6);
  for (int k = 0; k < terms; ++k) {
    std::vector<double> bytes(n);
    for (double& each : bytes) each = random.one_of(4) == 0 ? 0 : std::exp(random.between(2, 12));
    bytes[random.one_of(static_cast<int>(n))] = std::exp(random.between(6, 12));
    problem.step.terms.push_back(term(bytes));
  }
  const int cases = 1 + random.one_of(3);
  for (int s = 0; s < cases; ++s) {
    problem.step.cases.push_back({.constant_ns = random.between(0, 1000), .weights = {}});
    for (int k = 0; k < terms; ++k) problem.step.cases.back().weights.push_back(random.one_of(4));
  }
  for (std::size_t i = 0; i < n; ++i) problem.dollars_per_gbps.push_back(random.between(1, 60));
  problem.constraints.push_back(
      {.text = "budget", .coefficients = std::vector<double>(n, 1), .relation = Relation::equal, .limit = budget});
  if (n > 1 && random.one_of(2) == 0) {
    Constraint some{.text = "some", .coefficients = std::vector<double>(n), .relation = Relation::at_most};
    for (double& each : some.coefficients) each = random.between(0, 1);
    some.coefficients.front() = 0;  // somewhere bandwidth is free
    some.limit = budget * random.between(0.4, 1);
    problem.constraints.push_back(some);
  }
  return problem;
}

class Certified : public testing::TestWithParam<Objective> {};

// Budgets that are split by rounded numbers leave next to nothing, or are exceeded by as much.
TEST_P(Certified, AlsoWhereConstraintsNearlyTouch) {
  Random random{std::mt19937_64(11)};
  for (int i = 0; i < 400; ++i) {
    SCOPED_TRACE(i);
    const auto n = static_cast<std::size_t>(2 + random.one_of(3));
    DesignProblem problem{.step = {}, .dollars_per_gbps = {}, .constraints = {}, .objective = GetParam()};
    problem.step.dimensions = n;
    problem.step.cases = {{.constant_ns = 1e7 * random.one_of(2), .weights = {1, 1}}};
    for (int k = 0; k < 2; ++k) {
      problem.step.terms.emplace_back();
      for (std::size_t d = 0; d < n; ++d)
        if (d == static_cast<std::size_t>(k) || random.one_of(2) == 0)
          problem.step.terms.back().loads.push_back({std::uint32_t{1} << d, random.between(1e6, 1e9)});
    }
    const double budget = 100 * (1 + random.one_of(10)), even = budget / static_cast<double>(n);
    problem.constraints.push_back(
        {.text = "budget", .coefficients = std::vector<double>(n, 1), .relation = Relation::equal, .limit = budget});
    const bool least = random.one_of(2) == 0;
    const double unit = std::pow(10.0, -random.one_of(11));
    for (std::size_t d = 0; d < n; ++d) {
      problem.dollars_per_gbps.push_back(random.between(1, 60));
      Constraint one{.text = "one", .coefficients = std::vector<double>(n, 0), .relation = Relation::equal};
      one.coefficients[d] = 1;
      if (d == 0 || random.one_of(3) > 0) one.relation = least ? Relation::at_least : Relation::at_most;
      one.limit = unit * (least ? std::floor(even / unit) : std::ceil(even / unit));
      if (d + 1 < n || random.one_of(3) > 0) problem.constraints.push_back(one);
    }
    try {
      expect_certified(problem, solve(problem));
    } catch (const Error& error) {  // equations of rounded numbers do contradict one another
      EXPECT_EQ(error.kind(), ErrorKind::usage) << error.what();
    }
  }
}

TEST_P(Certified, WithThousandsOfUnlikeTerms) {
  Random random{std::mt19937_64(12)};
  for (const std::size_t n : {4, 9}) {
    DesignProblem problem{.step = {}, .dollars_per_gbps = {}, .constraints = {}, .objective = GetParam()};
    problem.step.dimensions = n;
    problem.step.cases = {{.constant_ns = 5, .weights = {}}};
    for (int k = 0; k < 3000; ++k) {
      problem.step.terms.emplace_back();
      for (std::size_t d = 0; d < n; ++d)
        if (random.one_of(10) < 7)
          problem.step.terms.back().loads.push_back({std::uint32_t{1} << d, random.between(0, 1e6)});
      problem.step.cases[0].weights.push_back(random.between(0, 5));
    }
    for (std::size_t d = 0; d < n; ++d) problem.dollars_per_gbps.push_back(random.between(1, 60));
    problem.constraints.push_back(
        {.text = "budget", .coefficients = std::vector<double>(n, 1), .relation = Relation::equal, .limit = 700});
    expect_certified(problem, solve(problem));
  }
}

// Each case has terms of its own, or all have the same ones with weights of their own; volumes over many magnitudes.
TEST_P(Certified, WithHundredsOfUnlikeTermsInSeveralCases) {
  Random random{std::mt19937_64(13)};
  for (int i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    const std::size_t n = i % 3 == 0 ? 4 : static_cast<std::size_t>(1 + random.one_of(6));
    DesignProblem problem{.step = {}, .dollars_per_gbps = {}, .constraints = {}, .objective = GetParam()};
    problem.step.dimensions = n;
    NetworkShape shape;
    for (std::size_t d = 0; d < n; ++d) {
      shape.dimensions.push_back({.block = d + 1 < n ? Block::ring : Block::switched, .size = 8});
      problem.dollars_per_gbps.push_back(std::exp(random.between(0, 20)));
    }
    problem.step.cases.resize(i % 2 == 0 ? 1 : 3);
    for (int k = 0; k < 600; ++k) {
      problem.step.terms.emplace_back();
      for (std::size_t d = 0; d < n; ++d)
        problem.step.terms.back().loads.push_back({std::uint32_t{1} << d, std::exp(random.between(0, 27))});
      for (StepCase& one : problem.step.cases)
        one.weights.push_back(&one == &problem.step.cases.front() ? 1 + random.one_of(8) : random.one_of(8));
    }
    problem.constraints.push_back(
        {.text = "budget", .coefficients = std::vector<double>(n, 1), .relation = Relation::equal, .limit = 1000});
    if (i % 3 == 0) problem.step = with_any_failure(problem.step, shape, 4);
    expect_certified(problem, solve(problem));
  }
}

INSTANTIATE_TEST_SUITE_P(Certified, Certified, testing::Values(Objective::time, Objective::time_cost),
                         [](const auto& objective) {
                           return objective.param == Objective::time ? "Time" : "TimeCost";
                         });

class AgainstNlopt : public testing::TestWithParam<Objective> {};

// NLopt may stop early, never below the proven bound; and it agrees to six digits in most cases.
TEST_P(AgainstNlopt, NothingIsBetter) {
  Random random{std::mt19937_64(7)};
  int agreed = 0;
  constexpr int problems = 60;
  for (int i = 0; i < problems; ++i) {
    SCOPED_TRACE(i);
    const DesignProblem problem = draw(random, GetParam());
    const Design design = solve(problem);
    expect_certified(problem, design);
    // From a neighbour of the optimum: NLopt's task is to find something better.
    std::vector<double> start = design.bandwidth_gbps;
    const double part = problem.constraints[0].limit / static_cast<double>(start.size());
    for (double& each : start) each = 0.9 * each + 0.1 * part;
    const double theirs = nlopt_objective(problem, start);
    EXPECT_GE(theirs, design.objective * (1 - 2e-6));
    agreed += theirs <= design.objective * (1 + 1e-6) ? 1 : 0;
  }
  EXPECT_GE(agreed, problems / 2);
}

INSTANTIATE_TEST_SUITE_P(, AgainstNlopt, testing::Values(Objective::time, Objective::time_cost),
                         [](const auto& each) { return each.param == Objective::time ? "Time" : "TimeCost"; });

// One all_reduce over dimensions that all wait for each other: T = (sum v) / B, each b proportional to its v.
TEST(Solver, OneTermIsSharedInProportion) {
  DesignProblem problem{.step = {.dimensions = 3, .terms = {term({60, 30, 10})}, .cases = {{.weights = {1}}}},
                        .dollars_per_gbps = {1, 2, 3},
                        .constraints = constraints({"b0+b1+b2=50"}, 3)};
  const Design design = solve(problem);
  EXPECT_NEAR(design.time_ns, 2, 1e-8);
  EXPECT_NEAR(design.bandwidth_gbps[0], 30, 1e-6);
  EXPECT_NEAR(design.bandwidth_gbps[1], 15, 1e-6);
  EXPECT_NEAR(design.marginal_ns_per_gbps[2], 2.0 / 50, 1e-6);  // dT/dB = -(sum v) / B^2, wherever it is added
}

// Separate terms: b proportional to the square root of what each carries.
TEST(Solver, SeparateTermsAreSharedBySquareRoots) {
  DesignProblem problem{
      .step = {.dimensions = 2, .terms = {term({90, 0}), term({0, 10})}, .cases = {{.weights = {1, 1}}}},
      .dollars_per_gbps = {1, 1},
      .constraints = constraints({"b0+b1=40"}, 2)};
  const Design design = solve(problem);
  EXPECT_NEAR(design.bandwidth_gbps[0], 30, 1e-4);
  EXPECT_NEAR(design.time_ns, 4, 1e-8);
}

TEST(Solver, MarginalValueIsTheDerivativeOfTheOptimum) {
  DesignProblem problem = gpt3_4d();
  problem.constraints = constraints({"b0+b1+b2+b3=500", "b0<=300"}, 4);
  const Design design = solve(problem);
  for (std::size_t i = 0; i < 4; ++i) {
    // A little bandwidth for nothing in dimension i is a little budget more and, if i is capped, a little more there.
    DesignProblem more = problem;
    for (auto& constraint : more.constraints) constraint.limit += 1e-2 * constraint.coefficients[i];
    const double saved = (design.time_ns - solve(more).time_ns) / 1e-2;
    EXPECT_GT(saved, 1000) << i;
    EXPECT_NEAR(saved, design.marginal_ns_per_gbps[i], 2e-3 * saved) << i;
  }
  EXPECT_GT(design.marginal_ns_per_gbps[0], 1.1 * design.marginal_ns_per_gbps[1]);
}

// Of time x cost at the optimum no GB/s is worth moving: what it saves, less what it costs, is the same everywhere.
TEST(Solver, MarginalValueBalancesWhatBandwidthCosts) {
  DesignProblem problem = gpt3_4d();
  problem.objective = Objective::time_cost;
  problem.constraints = constraints({"b0+b1+b2+b3=500"}, 4);
  const Design design = solve(problem);
  const auto worth = [&](std::size_t i) {
    return design.marginal_ns_per_gbps[i] * design.cost_usd - design.time_ns * problem.dollars_per_gbps[i];
  };
  for (std::size_t i = 1; i < 4; ++i)
    EXPECT_NEAR(worth(i), worth(0), 1e-4 * design.time_ns * problem.dollars_per_gbps[3]) << i;
}

// What a limit holds far below its share is stiff, and so are dimensions that limits tie together: what is loose beside
// them must not drown in their rounding.
class TightLimits : public testing::TestWithParam<Objective> {};

TEST_P(TightLimits, AreProven) {
  const std::vector<std::vector<std::vector<double>>> steps{
      {{19e6, 46e6, 140e6}}, {{140e6, 46e6, 19e6}}, {{1, 2, 3}, {100, 0, 5}}, {{0, 0, 138694.6}}, {{6e5, 31, 1.5e9}}};
  const std::vector<std::vector<std::string>> limits{{"b0<=5"},
                                                     {"b1<=1"},
                                                     {"b2<=0.05"},
                                                     {"b0<=0.5", "b1<=0.005"},
                                                     {"b2>=b1", "b1>=b0", "b2<=394"},
                                                     {"b2>=0.02", "b0<=0.05", "b2>=0.04", "b1<=466"}};
  for (const auto& terms : steps)
    for (auto texts : limits) {
      SCOPED_TRACE(testing::PrintToString(terms) + " with " + testing::PrintToString(texts));
      texts.emplace_back("b0+b1+b2=500");
      DesignProblem problem{.step = {.dimensions = 3, .cases = {{}}}, .objective = GetParam()};
      problem.dollars_per_gbps = {4, 7.8, 57.4};
      problem.constraints = constraints(texts, 3);
      for (const auto& bytes : terms) {
        problem.step.terms.push_back(term(bytes));
        problem.step.cases[0].weights.push_back(1);
      }
      expect_certified(problem, solve(problem));
      if (GetParam() == Objective::time_cost) continue;  // that falls with all bandwidths where no equation holds them
      problem.constraints.back().relation = Relation::at_most;
      expect_certified(problem, solve(problem));
    }
}

INSTANTIATE_TEST_SUITE_P(, TightLimits, testing::Values(Objective::time, Objective::time_cost),
                         [](const auto& each) { return each.param == Objective::time ? "Time" : "TimeCost"; });

TEST(Solver, TiesGoToTheCheapest) {
  // Dimension 0 is to have 10 at least, far more than it needs; nothing is left for the others to be faster with, and
  // bandwidth that is not needed may be anywhere.
  DesignProblem problem{.step = {.dimensions = 3, .terms = {term({1, 100, 0})}, .cases = {{.weights = {1}}}},
                        .dollars_per_gbps = {5, 1, 3},
                        .constraints = constraints({"b0+b1+b2=60", "b1<=20"}, 3)};
  const Design design = solve(problem);
  EXPECT_NEAR(design.time_ns, 5, 1e-7);
  EXPECT_NEAR(design.bandwidth_gbps[0], 0.2, 1e-5);
  EXPECT_NEAR(design.bandwidth_gbps[1], 20, 1e-5);
  EXPECT_NEAR(design.bandwidth_gbps[2], 39.8, 1e-5);
  expect_certified(problem, design);
}

// Bytes, bandwidths, limits and prices over as many orders of magnitude as may be written. Of given times of the terms
// each dimension needs what its bytes take; what is left of a budget that is to be spent goes to the cheapest.
TEST(Solver, TiesGoToTheCheapestAtAnyMagnitude) {
  Random random{std::mt19937_64(23)};
  const auto magnitude = [&](double least, double most) { return std::pow(10, random.between(least, most)); };
  int with_more_than_needed = 0, for_the_money = 0;
  for (int i = 0; i < 600; ++i) {
    SCOPED_TRACE(i);
    const auto n = static_cast<std::size_t>(2 + random.one_of(3));
    const double budget = magnitude(-3, 15);
    DesignProblem problem{.step = {.dimensions = n, .terms = {}, .cases = {{}}}};
    problem.step.cases[0].constant_ns = random.one_of(2) == 0 ? 0 : magnitude(-3, 12);
    for (int k = 1 + random.one_of(3); k > 0; --k) {
      std::vector<double> bytes(n);
      for (double& each : bytes) each = random.one_of(3) == 0 ? 0 : magnitude(-3, 15);
      bytes[random.one_of(static_cast<int>(n))] = magnitude(-3, 15);
      problem.step.terms.push_back(term(bytes));
      problem.step.cases[0].weights.push_back(1 + random.one_of(3));
    }
    for (std::size_t d = 0; d < n; ++d) problem.dollars_per_gbps.push_back(magnitude(-6, 9));
    const bool is_to_be_spent = random.one_of(2) == 0;
    problem.constraints.push_back({.text = "budget",
                                   .coefficients = std::vector<double>(n, 1),
                                   .relation = is_to_be_spent ? Relation::equal : Relation::at_most,
                                   .limit = budget});
    std::vector<double> most(n, budget);
    for (int limits = random.one_of(static_cast<int>(n)); limits > 0; --limits) {  // one dimension at least has none
      most[limits] = std::max(1e-8, budget * magnitude(-14, 0));
      Constraint limit{.text = "limit", .coefficients = std::vector<double>(n, 0), .limit = most[limits]};
      limit.coefficients[limits] = 1;
      problem.constraints.push_back(std::move(limit));
    }
    const Design design = solve(problem);
    expect_certified(problem, design);
    const auto times = term_times(problem.step.terms, design.bandwidth_gbps);
    std::vector<double> needed(n, 0);
    for (std::size_t k = 0; k < times.size(); ++k)
      for (std::size_t d = 0; d < n; ++d)
        needed[d] = std::max(needed[d], problem.step.terms[k].loads[d].bytes / times[k]);
    std::vector<std::size_t> cheapest_first(n);
    std::iota(cheapest_first.begin(), cheapest_first.end(), std::size_t{0});
    std::ranges::sort(cheapest_first, {}, [&](std::size_t d) { return problem.dollars_per_gbps[d]; });
    double left = is_to_be_spent ? budget - std::accumulate(needed.begin(), needed.end(), 0.0) : 0;
    double cost = 0;
    for (const std::size_t d : cheapest_first) {
      const double more = std::clamp(left, 0.0, std::max(0.0, most[d] - needed[d]));
      cost += (needed[d] + more) * problem.dollars_per_gbps[d];
      left -= more;
      with_more_than_needed += static_cast<int>(more > 1e-6 * needed[d]);
    }
    EXPECT_LE(design.cost_usd, cost * (1 + 1e-6));
    // Also for the money, of a budget that is to be spent.
    if (!is_to_be_spent) continue;
    problem.objective = Objective::time_cost;
    expect_certified(problem, solve(problem));
    ++for_the_money;
  }
  EXPECT_GT(with_more_than_needed, 120);
  EXPECT_GT(for_the_money, 200);
}

// A dimension whose limit says how long the step is, and a case that ends before: what it sends, over dimensions of its
// own one after the other, is to take all of that time, for which b_i = sqrt(v_i / c_i) x sum of sqrt(v c) / time is
// the cheapest.
TEST(Solver, OfSeveralCasesTheCheapestIsLateInNone) {
  Random random{std::mt19937_64(29)};
  const auto magnitude = [&](double least, double most) { return std::pow(10, random.between(least, most)); };
  for (int i = 0; i < 300; ++i) {
    SCOPED_TRACE(i);
    const auto n = static_cast<std::size_t>(2 + random.one_of(4));
    const double step = magnitude(0, 9);
    const std::vector<double> computes{step * random.between(0, 0.9), step * random.between(0, 0.9)};
    DesignProblem problem{.step = {.dimensions = n,
                                   .terms = {},
                                   .cases = {{.constant_ns = computes[0], .weights = std::vector<double>(n, 0)},
                                             {.constant_ns = computes[1], .weights = std::vector<double>(n, 1)}}}};
    problem.step.cases[0].weights[0] = 1;
    problem.step.cases[1].weights[0] = 0;
    std::vector<double> bytes(n);
    double root = 0;
    for (std::size_t d = 0; d < n; ++d) {
      bytes[d] = magnitude(3, 6) * step;
      std::vector<double> of_term(n, 0);
      of_term[d] = bytes[d];
      problem.step.terms.push_back(term(of_term));
      problem.dollars_per_gbps.push_back(magnitude(-1, 2));
      if (d > 0) root += std::sqrt(bytes[d] * problem.dollars_per_gbps[d]);
    }
    std::vector<double> best{bytes[0] / (step - computes[0])};
    double cost = best[0] * problem.dollars_per_gbps[0];
    for (std::size_t d = 1; d < n; ++d) {
      best.push_back(std::sqrt(bytes[d] / problem.dollars_per_gbps[d]) * root / (step - computes[1]));
      cost += best[d] * problem.dollars_per_gbps[d];
    }
    for (std::size_t d = 0; d < n; ++d) {
      Constraint limit{.text = "limit", .coefficients = std::vector<double>(n, 0), .limit = best[d]};
      limit.coefficients[d] = 1;
      if (d > 0) limit.limit *= magnitude(0.5, 2);
      problem.constraints.push_back(std::move(limit));
    }
    const Design design = solve(problem);
    expect_certified(problem, design);
    EXPECT_NEAR(design.time_ns, step, 1e-9 * step);
    EXPECT_NEAR(design.cost_usd, cost, 1e-6 * cost);
    for (std::size_t d = 0; d < n; ++d) EXPECT_NEAR(design.bandwidth_gbps[d], best[d], 1e-3 * best[d]) << d;
  }
}

// Beside caps also lower limits, and sums and differences of bandwidths, which tie together what is of unlike
// magnitude.
TEST(Solver, TimeTimesCostIsProvenAtAnyMagnitude) {
  Random random{std::mt19937_64(23)};
  const auto magnitude = [&](double least, double most) { return std::pow(10, random.between(least, most)); };
  int proven = 0;
  for (int i = 0; i < 1500; ++i) {
    SCOPED_TRACE(i);
    const auto n = static_cast<std::size_t>(2 + random.one_of(4));
    const int last = static_cast<int>(n);
    const double budget = magnitude(-3, 15);
    DesignProblem problem{.step = {.dimensions = n}, .objective = Objective::time_cost};
    problem.step.cases.resize(static_cast<std::size_t>(1 + (random.one_of(3) == 0 ? random.one_of(3) : 0)));
    for (StepCase& one : problem.step.cases) one.constant_ns = random.one_of(2) == 0 ? 0 : magnitude(-3, 12);
    for (int k = 1 + random.one_of(3); k > 0; --k) {
      std::vector<double> bytes(n);
      for (double& each : bytes) each = random.one_of(3) == 0 ? 0 : magnitude(-3, 15);
      bytes[static_cast<std::size_t>(random.one_of(last))] = magnitude(-3, 15);
      problem.step.terms.push_back(term(bytes));
      for (StepCase& one : problem.step.cases)
        one.weights.push_back(&one == &problem.step.cases.front() ? 1 + random.one_of(3) : random.one_of(4));
    }
    for (std::size_t d = 0; d < n; ++d) problem.dollars_per_gbps.push_back(magnitude(-6, 9));
    problem.constraints.push_back(
        {.text = "budget", .coefficients = std::vector<double>(n, 1), .relation = Relation::equal, .limit = budget});
    for (int limits = random.one_of(last); limits > 0; --limits) {
      Constraint limit{.text = "limit",
                       .coefficients = std::vector<double>(n, 0),
                       .relation = random.one_of(4) == 0 ? Relation::at_least : Relation::at_most,
                       .limit = std::max(1e-8, budget * magnitude(-14, 0))};
      limit.coefficients[static_cast<std::size_t>(limits)] = 1;
      auto& other = limit.coefficients[static_cast<std::size_t>(random.one_of(last))];
      if (random.one_of(5) == 0 && other == 0) other = random.one_of(2) == 0 ? 1 : -1;
      problem.constraints.push_back(std::move(limit));
    }
    try {
      expect_certified(problem, solve(problem));
      ++proven;
    } catch (const Error& error) {  // limits that contradict one another, or leave a dimension in use nothing
      EXPECT_EQ(error.kind(), ErrorKind::usage) << error.what();
    }
  }
  EXPECT_GT(proven, 1400);
}

TEST(Solver, LimitsOfUnlikeMagnitudeThatContradictOneAnotherAreNamed) {
  DesignProblem problem{.step = {.dimensions = 2, .terms = {term({5, 5})}, .cases = {{.weights = {1}}}},
                        .dollars_per_gbps = {1, 1},
                        .constraints = constraints({"b0+b1=1e10", "b1<=0.2", "b1>=0.5"}, 2)};
  EXPECT_THAT(support::refusal([&] { solve(problem); }), testing::HasSubstr("'b1<=0.2', 'b1>=0.5' contradict"));
  problem.constraints = constraints({"b0+b1=1e10", "b1<=0.2"}, 2);
  const Design design = solve(problem);
  EXPECT_NEAR(design.time_ns, 25, 1e-6);
  expect_certified(problem, design);
}

TEST(Solver, InequalitiesThatAreEquationsAreServed) {
  DesignProblem problem = gpt3_4d();
  problem.constraints =
      constraints({"b0+b1+b2+b3<=500", "b0+b1+b2+b3>=500", "b2>=b3", "b3>=b2", "2*b0+2*b1+2*b2+2*b3=1000"}, 4);
  const Design design = solve(problem);
  EXPECT_NEAR(design.bandwidth_gbps[2], design.bandwidth_gbps[3], 1e-5);
  expect_certified(problem, design);
}

TEST(Solver, ADimensionWithoutTrafficMayHaveNothing) {
  DesignProblem problem{.step = {.dimensions = 2, .terms = {term({10, 0})}, .cases = {{.weights = {1}}}},
                        .dollars_per_gbps = {1, 1},
                        .constraints = constraints({"b0+b1=10", "b1<=0"}, 2)};
  for (const Objective objective : {Objective::time, Objective::time_cost}) {
    problem.objective = objective;
    const Design design = solve(problem);
    EXPECT_EQ(design.bandwidth_gbps[1], 0);
    EXPECT_NEAR(design.time_ns, 1, 1e-8);
    expect_certified(problem, design);
  }
}

TEST(Solver, AStepThatSendsNothingTakesItsComputeTime) {
  DesignProblem problem{.step = {.dimensions = 2, .terms = {}, .cases = {{.constant_ns = 7}}},
                        .dollars_per_gbps = {4, 2},
                        .constraints = constraints({"b0+b1=10"}, 2)};
  const Design design = solve(problem);
  EXPECT_EQ(design.time_ns, 7);
  EXPECT_EQ(design.lower_bound, 7);
  EXPECT_EQ(design.bandwidth_gbps, (std::vector<double>{0, 10}));  // the cheapest way to spend it
}

// Of a step that computes nothing time x cost goes by proportions. Where all bandwidths may be as small as one likes,
// the most that fits is given, and is as good as the best for a sum that is to be spent, by NLopt as well, and as any
// part.
TEST(Solver, AStepThatOnlySendsHasTheBestProportionsAtAnyScale) {
  Random random{std::mt19937_64(41)};
  for (int i = 0; i < 200; ++i) {
    SCOPED_TRACE(i);
    DesignProblem problem = draw(random, Objective::time_cost);
    for (StepCase& one : problem.step.cases) one.constant_ns = 0;
    problem.constraints.erase(problem.constraints.begin() + 1, problem.constraints.end());
    const std::size_t n = problem.step.dimensions;
    if (n > 1 && random.one_of(2) == 0) problem.constraints.push_back(constraints({"b0>=b1"}, n).front());
    const double budget = problem.constraints.front().limit;
    const Design spent = solve(problem);
    EXPECT_FALSE(spent.any_scale);
    problem.constraints.front().relation = Relation::at_most;
    const Design design = solve(problem);
    if (design.objective == 0) continue;  // nothing counts that is sent
    EXPECT_TRUE(design.any_scale);
    EXPECT_NEAR(std::accumulate(design.bandwidth_gbps.begin(), design.bandwidth_gbps.end(), 0.0) / budget, 1, 1e-9);
    expect_certified(problem, design);
    EXPECT_NEAR(design.objective, spent.objective, 2e-6 * spent.objective);
    problem.constraints.front().relation = Relation::equal;
    EXPECT_LE(design.lower_bound, nlopt_objective(problem, spent.bandwidth_gbps) * (1 + 1e-6));
  }
}

TEST(Solver, AStepThatOnlySendsTakesTheLeastThatItMay) {
  DesignProblem problem = gpt3_4d();
  problem.step.cases[0].constant_ns = 0;
  problem.objective = Objective::time_cost;
  problem.constraints = constraints({"b0+b1+b2+b3>=10", "b0+b1+b2+b3<=500"}, 4);
  const Design least = solve(problem);
  expect_certified(problem, least);
  EXPECT_FALSE(least.any_scale);
  problem.constraints = constraints({"b0+b1+b2+b3=10"}, 4);
  EXPECT_NEAR(least.cost_usd / solve(problem).cost_usd, 1, 1e-4);
}

std::string refusal(const DesignProblem& problem) {
  try {
    solve(problem);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "nothing was refused";
}

TEST(Solver, OfAStepThatOnlySendsNamesWhatWasWritten) {
  DesignProblem problem{.step = {.dimensions = 1, .terms = {term({1e9})}, .cases = {{.weights = {1}}}},
                        .dollars_per_gbps = {1},
                        .constraints = constraints({"b0<=10", "0-b0>=0"}, 1)};
  for (const Objective objective : {Objective::time, Objective::time_cost}) {
    problem.objective = objective;
    EXPECT_THAT(refusal(problem), testing::HasSubstr("'0-b0>=0' leaves dimension 0 (b0) no bandwidth"));
  }
}

TEST(Solver, SaysWhichConstraintsContradictEachOther) {
  DesignProblem problem = gpt3_4d();
  problem.constraints = constraints({"b0+b1+b2+b3=500", "b3<=100", "b0>=300", "b1>=b0", "b2<=7"}, 4);
  EXPECT_EQ(refusal(problem),
            "'b0+b1+b2+b3=500', 'b0>=300', 'b1>=b0' contradict one another; leave one of them out or change it");
  problem.constraints = constraints({"b0+b1<=-5"}, 4);
  EXPECT_EQ(refusal(problem), "'b0+b1<=-5' cannot be met by bandwidths that are at least 0");
}

TEST(Solver, RefusesWhatHasNoOptimum) {
  DesignProblem problem = gpt3_4d();
  problem.constraints = constraints({"b0+b1+b2<=500"}, 4);
  EXPECT_THAT(refusal(problem), testing::HasSubstr("nothing limits the bandwidth of dimension 3"));
  problem.constraints = constraints({"b0+b1+b2+b3=500", "b2<=0"}, 4);
  EXPECT_THAT(refusal(problem), testing::StartsWith("'b2<=0' leaves dimension 2 (b2) no bandwidth"));
  // Those that have nothing to do with it are not named.
  problem.constraints = constraints({"b0+b1+b2+b3=500", "b1<=200", "b2<=b3", "b0>=1", "b3<=0"}, 4);
  EXPECT_EQ(
      refusal(problem),
      "'b2<=b3', 'b3<=0' leave dimension 2 (b2) no bandwidth, and the workload sends over it; loosen one of them");
  problem.objective = Objective::time_cost;
  problem.dollars_per_gbps = {0, 0, 0, 0};
  EXPECT_THAT(refusal(problem), testing::HasSubstr("a network that costs nothing"));
  problem = gpt3_4d();
  problem.constraints = constraints({"b0+b1+b2+b3<=500"}, 4);
  problem.objective = Objective::time_cost;
  EXPECT_THAT(refusal(problem), testing::HasSubstr("keeps falling as all bandwidths shrink"));
  problem.step.cases[0].constant_ns = 0;
  problem.constraints = constraints({"b0>=b1"}, 4);
  EXPECT_THAT(refusal(problem), testing::HasSubstr("is the same however much of it there is; add a budget"));
}

}  // namespace
}  // namespace ranvier
