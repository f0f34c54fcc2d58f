#include "plan/simulate/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "ranvier/error.h"
#include "ranvier/simulate.h"

namespace ranvier::plan {
namespace {

// From each to the one so many further, and from the last ones to the first.
Schedule to_the_next(std::string_view name, Collective collective, Rank size, Rank hops = 1) {
  Schedule line{.algorithm = std::string(name), .collective = collective, .world = size, .program = {}};
  line.program = [size, hops = hops % size](Rank rank) {
    if (hops == 0) return std::vector<Step>{};
    return std::vector<Step>{{Action::send, (rank + hops) % size, input(0), {}, 0},
                             {Action::recv, (rank + size - hops) % size, {}, output(0), 0}};
  };
  return line;
}

Schedule of_one_group(Collective collective, Rank size, const std::string& algorithm, Rank hops = 1) {
  if (collective == Collective::send) return to_the_next("send", Collective::all_to_all, size, hops);
  // On a star and on trees: see in_network.cc.
  if (algorithm == in_network) return to_the_next(in_network, collective, size);
  const AlgorithmSpec spec = parse_algorithm(algorithm);
  const ScheduleRequest request{.collective = collective, .world = size, .dims = spec.dims};
  if (std::ranges::count(spec.algorithm().collectives, collective) > 0) return spec.algorithm().build(request);
  // With the neighbours along a line, which is what parts of an image or a sequence are.
  const auto* const other = collective == Collective::neighbor_exchange ? "neighbor_exchange" : "direct";
  return find_algorithm(other, collective).build({.collective = collective, .world = size});
}

// Where each group has a root, all ranks have its buffers.
Collective with_buffers_of_roots(Collective collective) {
  switch (collective) {
    case Collective::reduce:
    case Collective::broadcast:
      return Collective::all_reduce;
    case Collective::gather:
      return Collective::all_gather;
    case Collective::scatter:
      return Collective::reduce_scatter;
    default:
      return collective;
  }
}

}  // namespace

Rank size_of(const Axes& axes) {
  Rank size = 1;
  for (const Grouping& axis : axes) size *= axis.size;
  return size;
}

std::optional<Axes> axes_of(std::span<const Rank> ranks, Rank world) {
  std::vector<Rank> sorted(ranks.begin(), ranks.end());
  std::ranges::sort(sorted);
  Axes axes;
  std::size_t known = 1;  // of its members, along the axes so far
  for (std::int64_t around = 1; known < sorted.size();) {
    const Rank stride = sorted[known] - sorted[0];
    if (stride < 1) return std::nullopt;
    std::size_t size = 1;
    const auto repeats = [&](std::size_t times) {
      if ((times + 1) * known > sorted.size()) return false;
      for (std::size_t i = 0; i < known; ++i)
        if (sorted[times * known + i] != sorted[i] + std::int64_t{stride} * static_cast<std::int64_t>(times))
          return false;
      return true;
    };
    while (repeats(size)) ++size;
    const auto axis_size = static_cast<Rank>(size);
    if (size < 2 || stride % around != 0 || sorted[0] / stride % axis_size != 0) return std::nullopt;
    around = std::int64_t{stride} * axis_size;
    if (world % around != 0) return std::nullopt;
    axes.push_back({.size = axis_size, .stride = stride});
    known *= size;
  }
  return axes;
}

std::vector<Rank> grid_of(const Axes& axes, Rank world) {
  std::vector<Rank> dims;
  const auto divide = [&](Rank size) {
    if (size > 1) dims.insert(dims.begin(), size);
  };
  Rank around = 1;
  for (const Grouping& axis : axes) {
    divide(axis.stride / around);
    divide(axis.size);
    around = axis.stride * axis.size;
  }
  divide(world / around);
  return dims;
}

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

Schedule in_each(Schedule one, Rank world, const Axes& axes) {
  if (one.world == world) return one;
  Schedule all = one;
  all.world = world;
  all.collective = with_buffers_of_roots(one.collective);
  all.grid = {};
  if (axes.size() == 1 && !one.grid.dims.empty()) {
    all.grid.dims = {world / axes.front().size / axes.front().stride};
    all.grid.dims.insert(all.grid.dims.end(), one.grid.dims.begin(), one.grid.dims.end());
    all.grid.dims.push_back(axes.front().stride);
    std::erase(all.grid.dims, 1);
  }
  all.program = [one = std::move(one), axes](Rank rank) {
    Rank first = rank, member = 0, inner = 1;
    for (const Grouping& axis : axes) {
      const Rank place = rank / axis.stride % axis.size;
      first -= place * axis.stride;
      member += place * inner;
      inner *= axis.size;
    }
    auto steps = one.program(member);
    for (Step& step : steps) {
      if (step.peer < 0) continue;
      Rank left = std::exchange(step.peer, first);
      for (const Grouping& axis : axes) {
        step.peer += left % axis.size * axis.stride;
        left /= axis.size;
      }
    }
    return steps;
  };
  return all;
}

Schedule in_all_groups(Collective collective, Rank world, const Axes& axes, const std::string& algorithm, Rank hops) {
  return in_each(of_one_group(collective, size_of(axes), algorithm, hops), world, axes);
}

Schedule pushes(Rank world, const Grouping& group, Rank hops) {
  return in_each(to_the_next("push", Collective::all_to_all, group.size, hops), world, {group});
}

namespace {

// What each group runs, and who stands where in which of them.
struct GroupPrograms {
  struct Own {
    Schedule schedule;
    std::uint32_t chunks_in_one = 1;  // chunks of the world's vector in a chunk of the group's
  };
  RankGroups groups;
  std::map<std::size_t, Own> by_size;
  std::vector<std::pair<std::size_t, Rank>> places;  // by rank: its group, and its number there; -1: in none

  std::vector<Step> program(Rank rank) const {
    const auto [number, member] = places[static_cast<std::size_t>(rank)];
    if (member < 0) return {};
    const auto& group = groups[number];
    const Own& own = by_size.at(group.size());
    auto steps = own.schedule.program(member);
    for (Step& step : steps) {
      if (step.peer >= 0) step.peer = group[static_cast<std::size_t>(step.peer)];
      step.from.chunk *= own.chunks_in_one;
      step.to.chunk *= own.chunks_in_one;
      step.chunks *= own.chunks_in_one;
    }
    return steps;
  }
};

}  // namespace

Schedule in_groups(Collective collective, Rank world, const RankGroups& groups, const std::string& algorithm) {
  constexpr std::uint64_t most_chunks = 1 << 16;
  auto all = std::make_shared<GroupPrograms>();
  all->groups = groups;
  all->places.assign(static_cast<std::size_t>(world), {0, -1});
  std::uint64_t chunks = 1;
  for (std::size_t number = 0; number < groups.size(); ++number) {
    const auto& group = groups[number];
    for (std::size_t member = 0; member < group.size(); ++member)
      all->places[static_cast<std::size_t>(group[member])] = {number, static_cast<Rank>(member)};
    if (all->by_size.contains(group.size())) continue;
    const auto size = static_cast<Rank>(group.size());
    const auto& own = all->by_size.emplace(group.size(), GroupPrograms::Own{of_one_group(collective, size, algorithm)});
    chunks = std::lcm(chunks, std::uint64_t{own.first->second.schedule.chunks});
    if (chunks > most_chunks)
      throw Error(ErrorKind::usage, fmt::format("groups of so different sizes as {} and {} ranks are not simulated "
                                                "together; place as many ranks in each",
                                                groups.front().size(), group.size()));
  }
  for (auto& [size, own] : all->by_size) own.chunks_in_one = static_cast<std::uint32_t>(chunks) / own.schedule.chunks;
  return {.algorithm = algorithm,
          .collective = Collective::all_reduce,
          .world = world,
          .chunks = static_cast<std::uint32_t>(chunks),
          .program = [all = std::shared_ptr<const GroupPrograms>(std::move(all))](Rank rank) {
            return all->program(rank);
          }};
}

}  // namespace ranvier::plan
