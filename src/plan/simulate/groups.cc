#include "plan/simulate/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ranvier/error.h"
#include "ranvier/simulate.h"

namespace ranvier::plan {
namespace {

// From each to the next one, and from the last to the first.
Schedule to_the_next(std::string_view name, Collective collective, Rank size) {
  Schedule line{.algorithm = std::string(name), .collective = collective, .world = size, .program = {}};
  line.program = [size](Rank rank) {
    if (size == 1) return std::vector<Step>{};
    return std::vector<Step>{{Action::send, (rank + 1) % size, input(0), {}, 0},
                             {Action::recv, (rank + size - 1) % size, {}, output(0), 0}};
  };
  return line;
}

Schedule of_one_group(Collective collective, Rank size, const std::string& algorithm) {
  if (collective == Collective::send) return to_the_next("send", Collective::all_to_all, size);
  if (algorithm == in_network) return summed_by_switches(size);
  const AlgorithmSpec spec = parse_algorithm(algorithm);
  const ScheduleRequest request{.collective = collective, .world = size, .dims = spec.dims};
  if (std::ranges::count(spec.algorithm().collectives, collective) > 0) return spec.algorithm().build(request);
  return find_algorithm("direct", collective).build({.collective = collective, .world = size});
}

}  // namespace

Grid::Grid(const Workload& workload, Rank world)
    : tensor_(workload.degrees.tensor), expert_(workload.degrees.expert), pipeline_(workload.degrees.pipeline) {
  const std::int64_t divided = std::int64_t{tensor_} * pipeline_;
  if (world % divided != 0 || world / divided % expert_ != 0 ||
      (workload.degrees.data != 0 && workload.degrees.data * divided != world))
    throw Error(ErrorKind::usage,
                fmt::format("workload {} is divided into tp={}, pp={}, ep={}, dp={}, which does not make {} ranks; "
                            "write other degrees behind its name, or name another --world",
                            workload.name, tensor_, pipeline_, expert_,
                            workload.degrees.data == 0 ? "any" : std::to_string(workload.degrees.data), world));
  data_ = static_cast<Rank>(world / divided);
}

Grouping Grid::of(Role role) const {
  switch (role) {
    case Role::tensor:
      return {tensor_, 1};
    case Role::expert:
      return {expert_, tensor_};
    case Role::expert_data:
      return {data_ / expert_, tensor_ * expert_};
    case Role::pipeline:
      return {pipeline_, tensor_ * data_};
    default:  // data, and files that give groups by pass: all that are not divided otherwise
      return {data_, tensor_};
  }
}

Schedule in_all_groups(Collective collective, Rank world, const Grouping& group, const std::string& algorithm) {
  Schedule one = of_one_group(collective, group.size, algorithm);
  if (group.size == world) return one;
  Schedule all = one;
  all.world = world;
  all.program = [one = std::move(one), group](Rank rank) {
    const Rank member = rank / group.stride % group.size;
    auto steps = one.program(member);
    for (Step& step : steps)
      if (step.peer >= 0) step.peer = rank + (step.peer - member) * group.stride;
    return steps;
  };
  return all;
}

}  // namespace ranvier::plan

namespace ranvier {

Schedule summed_by_switches(Rank world) { return plan::to_the_next(in_network, Collective::all_reduce, world); }

}  // namespace ranvier
