// How much bandwidth each dimension of a network should have, for the shortest training step or the best step for its
// money. The model: W. Won, S. Rashidi, S. Srinivasan, T. Krishna: LIBRA: Enabling workload-aware multi-dimensional
// network topology optimization for distributed training of large AI models. ISPASS 2024 (arXiv:2109.11762).
//
// Bandwidths are in GB/s (10^9 bytes) per NPU, so that bytes divided by them are nanoseconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ranvier/network.h"

namespace ranvier {

// ---- What a step takes, as a function of the bandwidths.

// Bytes that some dimensions, a bit each, carry together: they take bytes / (sum of their bandwidths). One dimension
// nearly always; several where chunks may take them in any order (see network.h).
struct Load {
  std::uint32_t dimensions = 0;
  double bytes = 0;
};

// One collective, or several that are alike: all of its loads flow at once, the slowest says how long it takes.
struct TrafficTerm {
  std::vector<Load> loads = {};
};

// One way through the step that it cannot be shorter than: time that does not depend on bandwidth, and how often it
// passes each term. A step whose collectives all follow one another has one; one with a graph of dependencies, or that
// is to be safe from any of several failures, has one for each path or failure.
struct StepCase {
  double constant_ns = 0;
  std::vector<double> weights = {};  // by term
};

struct StepTime {
  std::size_t dimensions = 0;
  std::vector<TrafficTerm> terms = {};
  std::vector<StepCase> cases = {};
};

// How long each term takes by itself; infinite where something flows over no bandwidth.
std::vector<double> term_times(std::span<const TrafficTerm>, std::span<const double> bandwidth_gbps);
// constant + sum of weight x slowest load, of the worst case. Infinite where something flows over no bandwidth.
double step_ns(const StepTime&, std::span<const double> bandwidth_gbps);
// What share of a step of `step_ns` each dimension transfers all that is sent in it, in the worst case: 1 where it is
// never idle. Of mixed chunk orders with the mix of best_orders; not a number where it carries a load together with
// others for which there is none.
std::vector<double> utilisation(const StepTime& sent, std::span<const double> bandwidth_gbps, double step_ns);

// Steps that are alike often, or matter alike much: each with its weight. Each has one case.
StepTime weighted_sum(std::span<const StepTime>, std::span<const double> weights);

// ---- What bandwidths are allowed.

// Beyond which the numbers of a design are no longer told from 0, or from one another.
inline constexpr double least_gbps = 1e-9;
inline constexpr double most_gbps = 1e15;

enum class Relation : std::uint8_t { at_most, equal, at_least };

struct Constraint {
  std::string text = {};                  // as it was written, for messages
  std::vector<double> coefficients = {};  // by dimension
  Relation relation = Relation::at_most;
  double limit = 0;
  bool budget = false;  // what there is to spend, of which a cheaper design may spend less: see pareto_front
};

// What may stand behind a bandwidth, in GB/s.
inline constexpr std::pair<std::string_view, double> bandwidth_units[] = {
    {"GB/s", 1.0}, {"TB/s", 1e3}, {"MB/s", 1e-3}, {"Gbit/s", 0.125}, {"Tbit/s", 125.0}, {"Mbit/s", 125e-6},
    {"GB", 1.0},   {"TB", 1e3},   {"MB", 1e-3},   {"Gbit", 0.125},   {"Tbit", 125.0},   {"Mbit", 125e-6}};

// "b0>=b1", "2*b0 + b1 <= 300", "b0>=b1>=b2" (two constraints); numbers without b are GB/s.
// Throws Error{usage} that names the column.
std::vector<Constraint> parse_constraints(std::string_view text, std::size_t dimensions);

// ---- The best bandwidths.

enum class Objective : std::uint8_t {
  time,      // nanoseconds
  time_cost  // nanoseconds x dollars / 1e10
};
inline constexpr double time_cost_scale = 1e10;

struct DesignProblem {
  StepTime step = {};
  std::vector<double> dollars_per_gbps = {};  // of the whole system, by dimension
  std::vector<Constraint> constraints = {};
  Objective objective = Objective::time;
};

// Weights that prove a lower bound; anybody can check them without solving anything. For each term, weights of its
// loads that add up to sum over cases of case_weight x weight of the term; the cases' add up to 1. With the price of a
// constraint in ns (or objective units) per GB/s, at_least constraints turned around, free in sign for equal ones and
// otherwise at least 0, and a_i = sum of price x coefficient, q_i = sum of load weight x bytes,
//     lower bound = sum case_weight x constant + sum over i of 2 sqrt(q_i a_i) - sum of price x limit.
// For time_cost the same holds after the change of variables y = b / cost, s = 1 / cost, whose problem this is then
// about: one more dimension, s, that carries each case's constant, limits become coefficients of -s, and a last
// constraint says cost(y) = 1.
struct Certificate {
  StepTime step = {};
  std::vector<Constraint> constraints = {};
  std::vector<double> case_weights = {};
  std::vector<std::vector<double>> load_weights = {};  // by term, then load
  std::vector<double> prices = {};                     // by constraint
  double scale = 1;                                    // the bound of that problem x scale is `lower_bound`
};

struct Design {
  std::vector<double> bandwidth_gbps = {};
  double time_ns = 0;
  double cost_usd = 0;
  double objective = 0;
  double lower_bound = 0;  // of the objective; proven by the certificate
  // Saved by one more GB/s there, everything else re-balanced (of whole links: as it is).
  std::vector<double> marginal_ns_per_gbps = {};
  Certificate certificate = {};
  bool any_scale = false;  // any part of these bandwidths, the same of each, is as good: see solve
};

// The optimum; of several the cheapest. Time x cost of a step that only sends does not depend on how much bandwidth
// there is, but on its proportions; where constraints let all of it shrink to nothing, no optimum is the cheapest, and
// the fastest is given (`any_scale`), whose certificate is that of the least time for as much money. Throws
// Error{usage} for constraints that contradict one another (naming a smallest set that does), that leave a dimension in
// use without bandwidth, or that leave the objective without a least value, or that are about bandwidths beyond
// least_gbps and most_gbps; Error{internal} if the proven gap is above 1e-6.
Design solve(const DesignProblem&);

}  // namespace ranvier
