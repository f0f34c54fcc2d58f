// What a policy's averages take: among everybody, or by levels inside groups of replicas and among their first ones, as
// src/replica makes them.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "plan/simulate/collective_times.h"
#include "ranvier/simulate.h"

namespace ranvier::plan {

// The ranks of replicas that do something together; of a divided model those with the same part of it.
RankGroups ranks_of(const RankGroups& replicas, const Workload&, Rank world);
// Of everybody's vector of so many bytes, by the fastest algorithm there is: every group's first rank tells the others.
double broadcast_ns(const RankGroups&, double bytes, const Topology&, const SimulateOptions&);
// Of all that the workload averages in a step.
double averaged_bytes(const Workload&);

class LevelAverages {
 public:
  // `times`: of everybody. All outlive it. Throws Error{usage} for levels that are not those of the replicas.
  LevelAverages(const Workload&, const StepSimulation& how, const PolicySimulation&, CollectiveTimes& times);

  // A step whose gradients are averaged by each group of `level`.
  const StepPrediction& step(std::size_t level);
  // Who of them wait for one another: by replica the number of its group; empty: all.
  std::span<const int> groups(std::size_t level) const;

  // An average of parameters by each group of `level`, where the groups of `inside` agree already: their first replicas
  // average, and tell them.
  struct Parameters {
    std::vector<int> groups = {};  // by replica, -1 where its group is one that agrees already; empty: all
    double ns = 0;
  };
  const Parameters& parameters(std::size_t inside, std::size_t level);
  // All parameters from each replica to the one `hops` further.
  double push_ns(std::size_t hops);

 private:
  const StepSimulation& how(std::size_t level) const;
  bool is_everybody(std::size_t level) const;
  RankGroups groups_of(std::size_t level) const;
  CollectiveTimes& times_among(const RankGroups& replicas);
  Parameters average(std::size_t inside, std::size_t level);

  const Workload& workload_;
  const StepSimulation& how_;
  const PolicySimulation& simulation_;
  CollectiveTimes& everybody_;
  std::map<RankGroups, std::unique_ptr<CollectiveTimes>> times_;
  std::map<std::size_t, StepPrediction> steps_;
  std::map<std::pair<std::size_t, std::size_t>, Parameters> parameters_;
  std::map<std::size_t, double> pushes_;
};

}  // namespace ranvier::plan
