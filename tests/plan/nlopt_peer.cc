#include "plan/nlopt_peer.h"

#include <algorithm>
#include <functional>
#include <nlopt.hpp>
#include <stdexcept>

namespace ranvier {

double nlopt_objective(const DesignProblem& problem, const std::vector<double>& start) {
  const std::size_t n = problem.step.dimensions;
  // Maxima are not smooth: each term is a variable, and at least each of its loads.
  const std::size_t terms = problem.step.terms.size();
  std::vector<double> x(start);
  double scale = step_ns(problem.step, start);
  for (const auto& each : problem.step.terms) {
    double slowest = 1e-9;
    for (const Load& load : each.loads) {
      std::size_t i = 0;
      while ((load.dimensions >> i & 1) == 0) ++i;
      if (load.bytes > 0) slowest = std::max(slowest, load.bytes / start[i]);
    }
    x.push_back(slowest / scale);
  }
  x.push_back(1);
  nlopt::opt optimizer(nlopt::LD_SLSQP, static_cast<unsigned>(x.size()));
  std::vector<double> lower(x.size(), 0);
  for (std::size_t i = 0; i < n; ++i) lower[i] = 1e-9 * start[i];
  optimizer.set_lower_bounds(lower);
  const auto gradient_reset = [](std::vector<double>& gradient) { std::fill(gradient.begin(), gradient.end(), 0.0); };
  std::vector<std::function<double(const std::vector<double>&, std::vector<double>&)>> functions;
  functions.reserve(1000);
  const auto call = [](const std::vector<double>& at, std::vector<double>& gradient, void* data) {
    return (*static_cast<std::function<double(const std::vector<double>&, std::vector<double>&)>*>(data))(at, gradient);
  };
  const double cost_scale = [&] {
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += start[i] * problem.dollars_per_gbps[i];
    return sum;
  }();
  functions.emplace_back([&](const std::vector<double>& at, std::vector<double>& gradient) {
    if (!gradient.empty()) gradient_reset(gradient);
    if (problem.objective == Objective::time) {
      if (!gradient.empty()) gradient.back() = 1;
      return at.back();
    }
    double cost = 0;
    for (std::size_t i = 0; i < n; ++i) cost += at[i] * problem.dollars_per_gbps[i] / cost_scale;
    if (!gradient.empty()) {
      gradient.back() = cost;
      for (std::size_t i = 0; i < n; ++i) gradient[i] = at.back() * problem.dollars_per_gbps[i] / cost_scale;
    }
    return cost * at.back();
  });
  optimizer.set_min_objective(call, &functions.back());
  for (std::size_t k = 0; k < terms; ++k)
    for (const Load& load : problem.step.terms[k].loads) {
      if (load.bytes <= 0) continue;
      std::size_t i = 0;
      while ((load.dimensions >> i & 1) == 0) ++i;
      functions.emplace_back(
          [&, k, i, bytes = load.bytes / scale](const std::vector<double>& at, std::vector<double>& gradient) {
            if (!gradient.empty()) {
              gradient_reset(gradient);
              gradient[i] = -bytes / (at[i] * at[i]);
              gradient[n + k] = -1;
            }
            return bytes / at[i] - at[n + k];
          });
      optimizer.add_inequality_constraint(call, &functions.back(), 1e-12);
    }
  for (const StepCase& one : problem.step.cases) {
    functions.emplace_back([&, one](const std::vector<double>& at, std::vector<double>& gradient) {
      double time = one.constant_ns / scale - at.back();
      for (std::size_t k = 0; k < terms; ++k) time += one.weights[k] * at[n + k];
      if (!gradient.empty()) {
        gradient_reset(gradient);
        for (std::size_t k = 0; k < terms; ++k) gradient[n + k] = one.weights[k];
        gradient.back() = -1;
      }
      return time;
    });
    optimizer.add_inequality_constraint(call, &functions.back(), 1e-12);
  }
  for (const Constraint& constraint : problem.constraints) {
    functions.emplace_back([&, constraint](const std::vector<double>& at, std::vector<double>& gradient) {
      const double sign = constraint.relation == Relation::at_least ? -1 : 1;
      double left = -sign * constraint.limit;
      for (std::size_t i = 0; i < n; ++i) left += sign * constraint.coefficients[i] * at[i];
      if (!gradient.empty()) {
        gradient_reset(gradient);
        for (std::size_t i = 0; i < n; ++i) gradient[i] = sign * constraint.coefficients[i];
      }
      return left;
    });
    if (constraint.relation == Relation::equal)
      optimizer.add_equality_constraint(call, &functions.back(), 1e-10);
    else
      optimizer.add_inequality_constraint(call, &functions.back(), 1e-10);
  }
  optimizer.set_xtol_rel(1e-14);
  optimizer.set_ftol_rel(1e-15);
  optimizer.set_maxeval(3000);
  double value = 0;
  try {
    optimizer.optimize(x, value);
  } catch (const std::runtime_error&) {  // it ran into rounding; where it stands is still a point to compare with
  }
  x.resize(n);
  double cost = 0;
  for (std::size_t i = 0; i < n; ++i) cost += x[i] * problem.dollars_per_gbps[i];
  const double time = step_ns(problem.step, x);
  return problem.objective == Objective::time ? time : time * cost / time_cost_scale;
}

}  // namespace ranvier
