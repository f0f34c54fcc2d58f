#include "probe/machines.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "base/host.h"

namespace ranvier::probe {
namespace {

// Of each rank its machine: the first rank on it.
std::vector<Rank> machines_of(Communicator& communicator) {
  const std::string boot = boot_id();
  const auto mine = boot.empty() ? communicator.rank() : static_cast<std::int64_t>(std::hash<std::string>{}(boot));
  std::vector<std::int64_t> all(static_cast<std::size_t>(communicator.world()));
  communicator.all_gather(std::array{mine}, all);
  std::vector<Rank> machines;
  for (const std::int64_t id : all) machines.push_back(static_cast<Rank>(std::ranges::find(all, id) - all.begin()));
  return machines;
}

// What the links would carry of it.
struct RingLinks {
  double one_way = 0;
  double both_ways = 0;
};

// Gbit/s that all ranks of `group` send in an all_reduce by a ring, at its best: what disturbs it makes it slower, for
// seconds where the machine is a virtual one, so that slow rings are repeated for longer than that. Longer vectors than
// a pair's, since who shares a core waits for it now and then. One that is as fast as the `links` let it be says all:
// as they are one way, since what they carried both ways the same disturbances have made less.
double gbit_together(Communicator& group, std::size_t bytes, std::uint64_t samples, const RingLinks& links) {
  constexpr double enough = 0.9;
  constexpr double patience_s = 8;
  constexpr std::size_t times_longer = 4;
  std::vector<float> data;
  double spent_s = 0;  // the same for all
  const auto once = [&](std::size_t length) {
    data.assign(length / sizeof(float), 0.0F);
    group.barrier();
    const auto begin = std::chrono::steady_clock::now();
    group.all_reduce(data, {.algorithm = "ring"});
    std::array seconds{std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
    group.all_reduce(seconds, {.op = ReduceOp::max});
    spent_s += seconds[0];
    return 2.0 * (group.world() - 1) * static_cast<double>(length) * 8e-9 / seconds[0];
  };
  double best = once(bytes);
  const auto goes_on = [&](std::uint64_t done) {
    if (best < enough * links.both_ways) return done < samples || spent_s < patience_s;
    return best < enough * links.one_way && done < samples;
  };
  for (std::uint64_t i = 0; goes_on(i); ++i) best = std::max(best, once(times_longer * bytes));
  return best;
}

}  // namespace

std::vector<MeasuredMachine> measure_machines(Communicator& communicator, const MeasuredNetwork& network,
                                              std::size_t bytes, std::uint64_t samples) {
  const std::vector<Rank> machines = machines_of(communicator);
  const Rank mine = machines[static_cast<std::size_t>(communicator.rank())];
  const auto ranks_of = [&](Rank machine) {
    std::vector<Rank> ranks;
    for (Rank rank = 0; rank < communicator.world(); ++rank)
      if (machines[static_cast<std::size_t>(rank)] == machine) ranks.push_back(rank);
    return ranks;
  };
  MeasuredNetwork one_way = network;
  for (MeasuredLink& link : one_way.links) link.gbit_both_ways = 0;
  std::array<double, 1> rate{0};
  const std::vector<Rank> group_ranks = ranks_of(mine);
  if (const auto group = communicator.split(mine); group->world() > 1)
    rate[0] = gbit_together(*group, bytes, samples,
                            {.one_way = ring_gbit(one_way, group_ranks), .both_ways = ring_gbit(network, group_ranks)});
  std::vector<double> rates(machines.size());
  communicator.all_gather(rate, rates);
  std::vector<MeasuredMachine> result;
  for (Rank machine = 0; machine < communicator.world(); ++machine)
    if (auto ranks = ranks_of(machine); ranks.size() > 1)
      result.push_back({std::move(ranks), rates[static_cast<std::size_t>(machine)]});
  return result;
}

}  // namespace ranvier::probe
