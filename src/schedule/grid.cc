#include "schedule/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

#include "ranvier/error.h"
#include "schedule/steps.h"

namespace ranvier::grid {
namespace {

using namespace steps;

// The program of one rank. Chunks are numbered by the coordinates of the rank that they end at: in all_reduce, those of
// a part with its first dimension in front, so that the shares of every stage are consecutive chunks; in the other
// collectives like the ranks themselves.
class Program {
 public:
  Program(Collective collective, const Grid& grid, const std::vector<std::vector<std::size_t>>& order, Rank rank)
      : collective_(collective), grid_(grid), order_(order), rank_(rank), coordinates_(grid.dims.size()) {
    world_ = std::accumulate(grid.dims.begin(), grid.dims.end(), Rank{1}, std::multiplies<>());
    Rank rest = rank;
    for (std::size_t d = grid.dims.size(); d-- > 0; rest /= grid.dims[d]) coordinates_[d] = rest % grid.dims[d];
  }

  std::vector<Step> build() && {
    if (collective_ == Collective::all_gather) steps_.push_back(copy(input(0), output(chunk_of(rank_)), 0));
    for (std::size_t part = 0; part < order_.size(); ++part) add(part);
    return std::move(steps_);
  }

 private:
  void add(std::size_t part) {
    const auto& order = order_[part];
    std::vector<Stage> stages;
    std::uint32_t round = 0;
    for (std::size_t s = 0; s < order.size(); ++s) {
      stages.push_back(stage(part, s));
      Stage& stage = stages.back();
      stage.round = round;
      round += grid_.patterns[order[s]].rounds(grid_.dims[order[s]]);
      stage.completes = s + 1 == order.size();
      const bool scattering = collective_ == Collective::reduce_scatter;
      const auto working = [scattering](std::uint32_t chunk) { return scattering ? scratch(chunk) : output(chunk); };
      stage.before = s == 0 ? PlaceOf(&input) : PlaceOf(working);
      stage.partial = working;
      stage.result =
          scattering && stage.completes ? PlaceOf([](std::uint32_t) { return output(0); }) : PlaceOf(working);
    }
    if (collective_ != Collective::all_gather)
      for (std::size_t s = 0; s < order.size(); ++s) grid_.patterns[order[s]].reduce_scatter(stages[s], steps_);
    if (collective_ == Collective::reduce_scatter) return;
    if (collective_ == Collective::all_gather) round = 0;
    for (std::size_t s = order.size(); s-- > 0;) {
      stages[s].round = round;
      round += grid_.patterns[order[s]].rounds(grid_.dims[order[s]]);
      grid_.patterns[order[s]].all_gather(stages[s], steps_);
    }
  }

  // Members and shares of stage `s` of a part: what has been shared out before is this rank's only.
  Stage stage(std::size_t part, std::size_t s) const {
    const auto& order = order_[part];
    const std::vector<Rank> weights = weights_of(order);
    const std::size_t along = order[s];
    std::uint32_t own = static_cast<std::uint32_t>(part) * chunk_of(world_);
    for (std::size_t t = 0; t < s; ++t) own += chunk_of(coordinates_[order[t]] * weights[order[t]]);

    Stage stage;
    stage.self = coordinates_[along];
    for (Rank each = 0; each < grid_.dims[along]; ++each) {
      stage.members.push_back(rank_ + (each - stage.self) * rank_stride(along));
      std::vector<std::uint32_t> chunks{own + chunk_of(each * weights[along])};
      for (std::size_t t = s + 1; t < order.size(); ++t) {
        std::vector<std::uint32_t> more;
        for (const std::uint32_t chunk : chunks)
          for (Rank at = 0; at < grid_.dims[order[t]]; ++at) more.push_back(chunk + chunk_of(at * weights[order[t]]));
        chunks = std::move(more);
      }
      std::sort(chunks.begin(), chunks.end());
      stage.shares.push_back(runs_of(chunks));
    }
    return stage;
  }

  // How far apart in chunk numbers neighbours of each dimension are.
  std::vector<Rank> weights_of(const std::vector<std::size_t>& order) const {
    std::vector<Rank> weights(grid_.dims.size());
    if (collective_ == Collective::all_reduce) {
      Rank weight = 1;
      for (std::size_t t = order.size(); t-- > 0; weight *= grid_.dims[order[t]]) weights[order[t]] = weight;
    } else {
      for (std::size_t d = 0; d < weights.size(); ++d) weights[d] = rank_stride(d);
    }
    return weights;
  }

  Rank rank_stride(std::size_t along) const {
    Rank stride = 1;
    for (std::size_t d = along + 1; d < grid_.dims.size(); ++d) stride *= grid_.dims[d];
    return stride;
  }

  Collective collective_;
  const Grid& grid_;
  const std::vector<std::vector<std::size_t>>& order_;
  Rank rank_;
  Rank world_;
  std::vector<Rank> coordinates_;
  std::vector<Step> steps_;
};

}  // namespace

Schedule build(std::string_view algorithm, Collective collective, Rank world, const Grid& grid,
               const std::vector<std::vector<std::size_t>>& order) {
  auto working = order;
  for (auto& part : working) std::erase_if(part, [&](std::size_t along) { return grid.dims[along] == 1; });
  return {.algorithm = std::string(algorithm),
          .collective = collective,
          .world = world,
          .chunks = chunk_of(world) * static_cast<std::uint32_t>(order.size()),
          .grid = {.dims = grid.dims},
          .program = [collective, world, grid, order = std::move(working)](Rank rank) {
            return world == 1 ? alone() : Program(collective, grid, order, rank).build();
          }};
}

Schedule build_rotated(std::string_view algorithm, Collective collective, Rank world, const std::vector<Rank>& dims,
                       const Pattern& pattern) {
  Grid grid;
  for (const Rank size : dims)
    if (size > 1) grid.dims.push_back(size);  // nothing happens along the others
  if (grid.dims.empty()) grid.dims.push_back(1);
  grid.patterns.assign(grid.dims.size(), pattern);
  std::vector<std::size_t> order(grid.dims.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<std::vector<std::size_t>> orders{order};
  for (std::size_t part = 1; part < order.size() && collective == Collective::all_reduce; ++part) {
    std::rotate(order.begin(), order.begin() + 1, order.end());
    orders.push_back(order);
  }
  return build(algorithm, collective, world, grid, orders);
}

Rank balanced_divisor(Rank world) {
  Rank divisor = 1;
  while (divisor < world && (world % divisor != 0 || std::int64_t{divisor} * divisor < world)) ++divisor;
  return divisor;
}

std::vector<Rank> dims_of(std::string_view algorithm, Rank world, std::vector<Rank> dims) {
  if (dims.empty()) {
    const Rank larger = balanced_divisor(world);
    return {world / larger, larger};
  }
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  std::int64_t ranks = 1;
  for (const Rank size : dims) {
    if (size < 1)
      throw Error(ErrorKind::usage, fmt::format("algorithm '{}' was given a grid of {}; give dims of 1 or more",
                                                algorithm, fmt::join(dims, "x")));
    ranks = ranks > most / size ? most : ranks * size;
  }
  if (ranks != world)
    throw Error(ErrorKind::usage,
                fmt::format("algorithm '{}' was given a grid of {}, which has {} ranks, but the world has {}; give "
                            "dims that multiply to {}",
                            algorithm, fmt::join(dims, "x"), ranks, world, world));
  return dims;
}

}  // namespace ranvier::grid
