// How long a step takes on given bandwidths.
#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "plan/search/orders.h"
#include "ranvier/design.h"

namespace ranvier {
namespace {

double bandwidth_of(const Load& load, std::span<const double> bandwidth) {
  double sum = 0;
  for (std::size_t i = 0; i < bandwidth.size(); ++i)
    if ((load.dimensions >> i & 1) != 0) sum += bandwidth[i];
  return sum;
}

double time_of(const TrafficTerm& term, std::span<const double> bandwidth) {
  double slowest = 0;
  for (const Load& load : term.loads)
    if (load.bytes > 0) slowest = std::max(slowest, load.bytes / bandwidth_of(load, bandwidth));
  return slowest;
}

double time_of(const StepCase& one, std::span<const double> term_times) {
  double time = one.constant_ns;
  for (std::size_t k = 0; k < term_times.size(); ++k)
    if (one.weights[k] > 0) time += one.weights[k] * term_times[k];
  return time;
}

// What each dimension carries; not a number where several carry a load together and nothing says in which orders.
std::vector<double> bytes_of(const TrafficTerm& term, std::span<const double> bandwidth) {
  const bool is_mixed =
      std::ranges::any_of(term.loads, [](const Load& load) { return !std::has_single_bit(load.dimensions); });
  if (is_mixed)
    if (auto bytes = plan::bytes_in_best_orders(term, bandwidth)) return std::move(*bytes);
  std::vector<double> bytes(bandwidth.size(), 0);
  for (const Load& load : term.loads)
    for (std::size_t i = 0; i < bandwidth.size(); ++i)
      if ((load.dimensions >> i & 1) != 0 && load.bytes > 0)
        bytes[i] +=
            is_mixed && !std::has_single_bit(load.dimensions) ? std::numeric_limits<double>::quiet_NaN() : load.bytes;
  return bytes;
}

}  // namespace

std::vector<double> term_times(std::span<const TrafficTerm> terms, std::span<const double> bandwidth_gbps) {
  std::vector<double> times;
  times.reserve(terms.size());
  for (const TrafficTerm& term : terms) times.push_back(time_of(term, bandwidth_gbps));
  return times;
}

double step_ns(const StepTime& step, std::span<const double> bandwidth_gbps) {
  const auto times = term_times(step.terms, bandwidth_gbps);
  double worst = 0;
  for (const StepCase& one : step.cases) worst = std::max(worst, time_of(one, times));
  return worst;
}

std::vector<double> utilisation(const StepTime& sent, std::span<const double> bandwidth_gbps, double step_ns) {
  std::vector<double> result(sent.dimensions, 0);
  const auto times = term_times(sent.terms, bandwidth_gbps);
  const auto worst = std::max_element(sent.cases.begin(), sent.cases.end(), [&](const StepCase& a, const StepCase& b) {
    return time_of(a, times) < time_of(b, times);
  });
  if (worst == sent.cases.end()) return result;
  if (!(step_ns > 0) || step_ns == std::numeric_limits<double>::infinity()) return result;
  for (std::size_t k = 0; k < sent.terms.size(); ++k) {
    if (!(worst->weights[k] > 0)) continue;
    const auto bytes = bytes_of(sent.terms[k], bandwidth_gbps);
    for (std::size_t i = 0; i < sent.dimensions; ++i)
      if (bytes[i] != 0) result[i] += worst->weights[k] * bytes[i] / bandwidth_gbps[i] / step_ns;
  }
  return result;
}

StepTime weighted_sum(std::span<const StepTime> steps, std::span<const double> weights) {
  StepTime sum{.dimensions = steps.front().dimensions, .terms = {}, .cases = {{}}};
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const StepCase& one = steps[i].cases.front();
    sum.cases[0].constant_ns += weights[i] * one.constant_ns;
    sum.terms.insert(sum.terms.end(), steps[i].terms.begin(), steps[i].terms.end());
    for (const double weight : one.weights) sum.cases[0].weights.push_back(weights[i] * weight);
  }
  return sum;
}

}  // namespace ranvier
