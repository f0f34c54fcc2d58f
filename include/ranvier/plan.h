// How to communicate: which placement of the ranks, transport, algorithm, bucket, codec and policy make a step the
// shortest, and how a model is best divided, found by simulating all that is not already too slow by a bound; and which
// algorithm is the fastest at which size.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ranvier/execution_trace.h"
#include "ranvier/simulate.h"
#include "ranvier/topology.h"
#include "ranvier/workload.h"

namespace ranvier {

// What a codec makes of a gradient, as measured on this machine.
struct CodecSpeed {
  std::string spec = {};          // empty: no codec
  double wire_bytes = 1;          // per byte of gradient
  double encode_ns_per_byte = 0;  // of gradient
  double decode_ns_per_byte = 0;
  bool summable = true;  // codes are all-reduced as they are; else each rank owns a part, which all send it and get
                         // back (coded_exchange): the pattern of the algorithm `direct`
};

// The same step with gradients compressed, which so many ranks average; its buckets are of so many bytes of gradient.
StepSimulation with_codec(StepSimulation how, const CodecSpeed&, Rank replicas);
// How many ranks average a gradient of the workload.
Rank averaging_ranks(const Workload&, Rank world);

// A synchronization policy, and by how much of its time it has to be faster than an exact one: a step of its own is
// worth less (choose_policy.h).
struct PlanPolicy {
  std::string spec = "bsp";
  double margin = 0;
};
// bsp; local:16, which has to gain 10 %. Of replicas that are placed in nodes: node:16, 5 %; of ones that are not
// equally fast group, 5 %, and async, 15 %. Not those with an outer step, which suits some optimizers only.
std::vector<PlanPolicy> plan_policies(bool has_nodes = false, bool are_unequal = false);
// One of them, or that of its kind.
PlanPolicy plan_policy(std::string_view spec);

// One network that may be used: that of a transport, with the ranks standing somewhere on it.
struct PlanNetwork {
  std::string transport = {};
  Topology topology = {};  // as the ranks see it: see with_placement
  SimulateOptions options = {};
  std::vector<Rank> placement = {};            // see with_placement; empty: rank r stands at place r
  std::vector<FastestAlgorithm> by_size = {};  // of the algorithms (fastest_algorithms), as a further choice
};

struct PlanSearch {
  std::vector<std::string> algorithms = {};  // as parse_algorithm takes them
  // Those of rank_plans' single network; see PlanNetwork.
  std::vector<FastestAlgorithm> by_size = {};
  SimulateOptions options = {};
  std::vector<double> bucket_bytes = {1e6, 5e6, 25e6, 100e6, 1e18};
  std::vector<CodecSpeed> codecs = {{}};
  std::vector<PlanPolicy> policies = {{}};
  UnequalWorkers unequal = {};  // replicas: steps are then the means of many, bsp's too
  // Of a policy with nodes: as PolicySimulation::levels, of so many replicas. On networks whose ranks have been placed
  // elsewhere such policies are left out, since neighbours there share no node.
  std::function<std::vector<std::vector<int>>(const SyncPolicy&, Rank replicas)> levels = {};
  // Told of a policy of which nothing is possible, and why.
  std::function<void(const std::string& sync, const std::string& why)> left_out = {};
  // Which of the codecs a policy goes by; none: all.
  std::function<bool(const SyncPolicy&, const std::string& codec)> takes_codec = {};
  // Asked while it searches, see SimulateOptions::enough: the rest is left out then.
  std::function<bool()> enough = {};
  bool exhaustive = false;  // also what can neither be chosen nor come second, nor be the best of its codec
};

inline constexpr std::string_view by_size = "by_size";

// By how much of its time a codec has to be faster than none, if it is to be chosen: less is within what no prediction
// tells apart, and what is sent as it is loses nothing.
inline constexpr double codec_margin = 0.005;

struct PlanChoice {
  std::string algorithm;    // by_size: that of PlanNetwork::by_size
  double bucket_bytes = 0;  // of a trace 0: none
  std::string codec;
  std::string sync = "bsp";
  std::size_t network = 0;   // of those that were given
  std::size_t division = 0;  // of the workloads that were given
  StepPrediction step = {};  // one whose gradients are averaged
  double step_ns = 0;        // the mean by the policy
  double margin = 0;         // of the policy and of the codec
  double cost() const { return step_ns * (1 + margin); }
};

// Combinations of everything, the least cost() first; of equal ones the plainest (no codec, then the earlier in the
// lists). `divisions` are one workload divided in different ways over the same samples. What an algorithm cannot do in
// this world, or takes simulating too many unlike ranks, is left out, and so is what a bound shows to be slower than
// two others, or faster by less than 0.01 %, and than the best with its codec, on its network or in its division, or
// faster by less than 0.1 %. Policies that do not average gradients in every step are weighed with
// the quickest average of each codec. Throws Error{usage} where nothing is left, and Error{timeout} where the search
// was ended before it knew a single one.
std::vector<PlanChoice> rank_plans(const std::vector<Workload>& divisions, const std::vector<PlanNetwork>& networks,
                                   const PlanSearch&);
std::vector<PlanChoice> rank_plans(const Workload&, const Topology&, const PlanSearch&);
// Of a recorded step by its own graph and groups, as simulate_step takes it: networks and algorithms alone. A trace
// does not tell gradients from all else that is sent, so that there is nothing to gather in buckets, encode or leave
// out.
std::vector<PlanChoice> rank_plans(const ExecutionTrace&, const std::vector<PlanNetwork>& networks, const PlanSearch&);

// For sizes that double from 4 bytes to `most_bytes`: the fastest algorithm up to each size at which it changes; the
// last one is for all beyond. Where SimulateOptions::enough ends it, larger sizes are left out, and all of them are
// what is beyond; Error{timeout} where not even the smallest one is known.
std::vector<FastestAlgorithm> fastest_algorithms(const Topology&, const std::vector<std::string>& algorithms,
                                                 std::size_t most_bytes, const SimulateOptions& = {});

// ---- Placement.

// The same network with rank r at the place of rank placement[r], a permutation. Throws Error{usage} for another list.
Topology with_placement(const Topology&, const std::vector<Rank>& placement);
// An order in which neighbouring ranks are near each other, rank 0 where it is: what rings and groups of consecutive
// ranks gain by. Nearness is the time of one message of `bytes` alone on its way. The nearest neighbour first, then
// improved by turning pieces around (2-opt; G. Croes: A method for solving traveling-salesman problems. Operations
// Research 6 (1958)). Nothing where the order as it is cannot be improved, or of more than 256 ranks.
std::optional<std::vector<Rank>> near_placement(const Topology&, double bytes = 1e6);

// ---- Degrees of parallelism.

// `spec`, a ready-made workload, divided in every way over so many ranks that leaves its global batch as it is: tensor
// and pipeline degrees are those that the spec names, or powers of two that the model can be cut into. Each comes
// with all degrees and its batch. Only those whose state, 16 bytes a parameter (S. Rajbhandari et al.: ZeRO: Memory
// optimizations toward training trillion parameter models. SC 2020: weights, gradients and Adam's moments in mixed
// precision), fits into `memory_bytes` of each rank; activations come on top. The spec alone where its model is not
// divided that way. Throws Error{usage} where nothing fits, and as make_workload and check_world do.
std::vector<std::string> divisions(std::string_view spec, Rank world, double memory_bytes);
// Throws Error{usage} where the state of a workload as it is, whose gradients have so many bytes a value, does not fit.
void check_memory(std::string_view name, const Workload&, double value_bytes, double memory_bytes);

}  // namespace ranvier
