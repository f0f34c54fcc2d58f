// Whether a design's lower bound is one, by nothing but the weights and prices that come with it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "ranvier/design.h"

namespace ranvier {

// For any b >= 0 that meets the constraints: each case is at most the worst one, each load at most its term's slowest,
// q/b + a b >= 2 sqrt(q a), and prices only add what is not positive.
inline double proven_bound(const Certificate& proof) {
  double bound = 0, all_cases = 0;
  std::vector<double> q(proof.step.dimensions), a(proof.step.dimensions);
  for (std::size_t s = 0; s < proof.step.cases.size(); ++s) {
    bound += proof.case_weights[s] * proof.step.cases[s].constant_ns;
    all_cases += proof.case_weights[s];
  }
  EXPECT_NEAR(all_cases, 1, 1e-12);
  for (std::size_t k = 0; k < proof.step.terms.size(); ++k) {
    double allowed = 0, used = 0;
    for (std::size_t s = 0; s < proof.step.cases.size(); ++s)
      allowed += proof.case_weights[s] * proof.step.cases[s].weights[k];
    for (std::size_t l = 0; l < proof.load_weights[k].size(); ++l) {
      const Load& load = proof.step.terms[k].loads[l];
      EXPECT_GE(proof.load_weights[k][l], 0);
      EXPECT_TRUE(std::has_single_bit(load.dimensions));
      used += proof.load_weights[k][l];
      q[std::countr_zero(load.dimensions)] += proof.load_weights[k][l] * load.bytes;
    }
    EXPECT_LE(used, allowed * (1 + 1e-12));
  }
  for (std::size_t j = 0; j < proof.constraints.size(); ++j) {
    EXPECT_NE(proof.constraints[j].relation, Relation::at_least);
    EXPECT_TRUE(proof.constraints[j].relation == Relation::equal || proof.prices[j] >= 0);
    bound -= proof.prices[j] * proof.constraints[j].limit;
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += proof.prices[j] * proof.constraints[j].coefficients[i];
  }
  for (std::size_t i = 0; i < a.size(); ++i) bound += 2 * std::sqrt(q[i] * a[i]);  // not a number where a < 0
  return bound * proof.scale;
}

// Whether one of `rows` says the same as this one, to whatever scale. What all but touches is moved apart by as much as
// constraints may be off, below.
inline bool is_among(const Constraint& one, const std::vector<Constraint>& rows) {
  return std::ranges::any_of(rows, [&](const Constraint& other) {
    double factor = 0, largest = 0;
    const auto look_at = [&](double mine, double theirs) {
      if (std::abs(theirs) > largest) {
        largest = std::abs(theirs);
        factor = mine / theirs;
      }
    };
    for (std::size_t i = 0; i < one.coefficients.size(); ++i) look_at(one.coefficients[i], other.coefficients[i]);
    const auto alike = [&](double mine, double theirs) {
      return std::abs(mine - factor * theirs) <= 1e-7 * std::abs(mine);
    };
    bool same = alike(one.limit, other.limit);
    for (std::size_t i = 0; i < one.coefficients.size(); ++i)
      same = same && alike(one.coefficients[i], other.coefficients[i]);
    // at_least stands turned around.
    return same && (other.relation == Relation::equal || factor * (other.relation == Relation::at_most ? 1 : -1) > 0);
  });
}

// A bound of another problem would prove nothing about this one: the certificate's step takes as long wherever it is
// looked at, and each constraint with a price is one of the problem's. Of dimensions that share loads, for which it has
// variables of their own, this cannot be said so.
inline void expect_about(const DesignProblem& problem, const std::vector<double>& near, const Certificate& proof) {
  for (const TrafficTerm& term : problem.step.terms)
    for (const Load& load : term.loads)
      if (!std::has_single_bit(load.dimensions)) return;
  const bool priced = problem.objective == Objective::time_cost;
  const std::size_t n = problem.step.dimensions;
  ASSERT_EQ(proof.step.dimensions, n + (priced ? 1 : 0));
  for (std::size_t point = 0; point < 3; ++point) {
    std::vector<double> gbps = near;
    double cost = 0;
    for (std::size_t i = 0; i < n; ++i) {
      gbps[i] = std::max(gbps[i], 1e-3) * (1 + 0.3 * static_cast<double>((i + point) % 3));
      cost += gbps[i] * problem.dollars_per_gbps[i];
    }
    double expected = step_ns(problem.step, gbps);
    std::vector<double> at = gbps;
    if (priced) {
      expected *= cost / time_cost_scale;
      for (double& each : at) each /= cost;
      at.push_back(1 / cost);
    }
    EXPECT_NEAR(step_ns(proof.step, at) * proof.scale, expected, 1e-9 * expected);
  }
  std::vector<Constraint> known = problem.constraints;
  if (priced) {
    for (Constraint& each : known) {
      each.coefficients.push_back(-each.limit);
      each.limit = 0;
    }
    known.push_back({.coefficients = problem.dollars_per_gbps, .relation = Relation::equal, .limit = 1});
    known.back().coefficients.push_back(0);
  }
  for (std::size_t j = 0; j < proof.constraints.size(); ++j)
    if (proof.prices[j] != 0) {
      EXPECT_TRUE(is_among(proof.constraints[j], known)) << proof.constraints[j].text;
    }
}

// The bandwidths meet the constraints, time and cost are theirs, and the bound is proven and within a millionth.
inline void expect_certified(const DesignProblem& problem, const Design& design) {
  double cost = 0, most = 0;
  for (std::size_t i = 0; i < design.bandwidth_gbps.size(); ++i) {
    EXPECT_GE(design.bandwidth_gbps[i], 0);
    cost += design.bandwidth_gbps[i] * problem.dollars_per_gbps[i];
    most = std::max(most, design.bandwidth_gbps[i]);
  }
  for (const Constraint& constraint : problem.constraints) {
    double left = -constraint.limit;
    for (std::size_t i = 0; i < design.bandwidth_gbps.size(); ++i)
      left += constraint.coefficients[i] * design.bandwidth_gbps[i];
    EXPECT_TRUE(constraint.relation == Relation::at_least || left <= 1e-7 * most) << constraint.text;
    EXPECT_TRUE(constraint.relation == Relation::at_most || left >= -1e-7 * most) << constraint.text;
  }
  EXPECT_DOUBLE_EQ(design.time_ns, step_ns(problem.step, design.bandwidth_gbps));
  EXPECT_NEAR(design.cost_usd, cost, 1e-9 * cost);
  const double objective =
      problem.objective == Objective::time ? design.time_ns : design.time_ns * cost / time_cost_scale;
  EXPECT_NEAR(design.objective, objective, 1e-9 * objective);
  EXPECT_LE(design.lower_bound, objective * (1 + 1e-12));
  EXPECT_LE(objective - design.lower_bound, 1e-6 * objective);
  EXPECT_NEAR(proven_bound(design.certificate), design.lower_bound, 1e-9 * objective);
  if (!design.any_scale) expect_about(problem, design.bandwidth_gbps, design.certificate);
}

}  // namespace ranvier
