// Sums in switches. R. L. Graham et al.: Scalable hierarchical aggregation protocol (SHArP): a hardware architecture
// for efficient data reduction. COMHPC 2016.
//
// A star and a tree of switches are one dimension: each vector goes up once and comes down once, over every link of its
// tree. So does a vector that each member of a group sends to the next one: it leaves and enters each part of the tree
// once.
//
// A shape of `ranvier design` is passed dimension after dimension, as in src/plan/collective_loads.cc: inwards to
// outwards each leaves a rank with its share of the sum, and back outwards to inwards the shares are gathered. In the
// outermost dimension a switch gives back the sum of what it is sent: m bytes each way. Further in it passes on to each
// of g ranks the share that is its own, m up and m/g down, and on the way back gives each rank's share to all, m/g up
// and m down: messages to the next and from the next rank, of which the link down, or up, carries a g-th
// (Topology::carried). Of two or where there is no switch, ranks do it as multi_dimensional and torus do.
//
// A vector goes in parts, one behind the other, so that dimensions work at the same time.
#include "plan/simulate/in_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "plan/simulate/instance.h"
#include "ranvier/error.h"
#include "ranvier/network.h"
#include "schedule/grid.h"
#include "schedule/steps.h"

namespace ranvier::plan {
namespace {

// Beyond so many parts a pipeline is full for all but a few percent of the time.
constexpr double most_parts = 256;
constexpr std::size_t most_chunks = 1 << 18;

// What groups have of one dimension.
struct Span {
  std::int32_t dimension = 0;
  Block block = Block::switched;
  Rank size = 1;
  Rank stride = 1;  // how far apart members are numbered
  bool adds = false;

  Rank place(Rank rank) const { return rank / stride % size; }
};

[[noreturn]] void refuse_groups(const Topology& topology, const Grouping& group) {
  throw Error(ErrorKind::usage,
              fmt::format("groups of {} ranks, each {} behind the one before it, do not have even parts of the "
                          "dimensions of {}, so that no switch adds up for one of them; take degrees that divide the "
                          "dimensions",
                          group.size, group.stride, topology.name));
}

// From the innermost dimension on.
std::vector<Span> spans_of(const Topology& topology, const Grouping& group) {
  const auto shape = shape_of(topology);
  if (!shape) return {{.size = group.size, .stride = group.stride, .adds = true}};
  std::vector<Span> spans;
  Rank skipped = group.stride;
  Rank wanted = group.size;
  Rank stride = 1;
  for (std::size_t i = 0; i < shape->dimensions.size(); ++i) {
    const auto& [block, size, tier] = shape->dimensions[i];
    const Rank inside = std::min<Rank>(skipped, size);
    if (skipped % inside != 0 || size % inside != 0) refuse_groups(topology, group);
    const Rank take = std::min<Rank>(wanted, size / inside);
    if (wanted % take != 0 || size / inside % take != 0) refuse_groups(topology, group);
    if (take > 1)
      spans.push_back(
          {.dimension = static_cast<std::int32_t>(i), .block = block, .size = take, .stride = stride * inside});
    skipped /= inside;
    wanted /= take;
    stride *= size;
  }
  // Of two further in, a switch would carry more than they send each other.
  for (Span& span : spans) span.adds = span.block == Block::switched && (span.size > 2 || &span == &spans.back());
  return spans;
}

// A switch further in. All of a part is one run of chunks.
Run all_of(const grid::Stage& stage) {
  Run all = stage.shares.front().front();
  for (const auto& share : stage.shares)
    for (const Run& run : share) {
      all.chunks = std::max(all.first + all.chunks, run.first + run.chunks) - std::min(all.first, run.first);
      all.first = std::min(all.first, run.first);
    }
  return all;
}
Rank member(const grid::Stage& stage, Rank ahead) {
  return stage
      .members[static_cast<std::size_t>(steps::around(stage.self + ahead, static_cast<Rank>(stage.members.size())))];
}
const grid::Pattern by_switch{
    .rounds = [](Rank) { return 1u; },
    .reduce_scatter =
        [](const grid::Stage& stage, std::vector<Step>& program) {
          const Run all = all_of(stage);
          program.push_back(steps::send(member(stage, 1), stage.before(all.first), stage.round, all.chunks));
          program.push_back(steps::recv(member(stage, -1), stage.result(all.first), stage.round, all.chunks));
        },
    .all_gather =
        [](const grid::Stage& stage, std::vector<Step>& program) {
          const Run all = all_of(stage);
          program.push_back(steps::send(member(stage, -1), stage.result(all.first), stage.round, all.chunks));
          program.push_back(steps::recv(member(stage, 1), stage.result(all.first), stage.round, all.chunks));
        }};

const grid::Pattern& pattern_of(const Span& span) {
  if (span.adds) return by_switch;
  return span.block == Block::ring ? grid::both_ways_around : grid::all_pairs;
}

// Of one group, whose members are numbered along the innermost dimension first.
class Sum {
 public:
  Sum(std::vector<Span> spans, Rank size, std::size_t parts) : spans_(std::move(spans)), size_(size), parts_(parts) {
    grid::Grid grid;
    for (const Span& span : spans_) {
      if (span.adds && &span == &spans_.back()) break;
      grid.dims.insert(grid.dims.begin(), span.size);
      grid.patterns.insert(grid.patterns.begin(), pattern_of(span));
      inner_ *= span.size;
      rounds_inwards_ += pattern_of(span).rounds(span.size);
    }
    if (inner_ == 1) return;
    std::vector<std::size_t> innermost_first;
    for (std::size_t i = grid.dims.size(); i-- > 0;) innermost_first.push_back(i);
    below_ = grid::build(in_network, Collective::all_reduce, inner_, grid,
                         std::vector<std::vector<std::size_t>>(parts_, innermost_first));
  }

  std::uint32_t chunks() const { return static_cast<std::uint32_t>(inner_) * static_cast<std::uint32_t>(parts_); }

  std::vector<Step> program(Rank rank) const {
    const Rank place = rank % inner_;
    std::vector<Parts> parts(parts_);
    if (below_)
      for (Step& step : below_->program(place)) {
        const std::uint32_t chunk = step.action == Action::send ? step.from.chunk : step.to.chunk;
        const auto part = chunk / static_cast<std::uint32_t>(inner_);
        const bool back = step.round >= rounds_inwards_;
        if (step.peer >= 0) step.peer += rank - place;
        step.round += part + (back && inner_ < size_ ? 1 : 0);
        (back ? parts[part].back : parts[part].forth).push_back(step);
      }
    std::vector<Step> all;
    for (std::uint32_t part = 0; part < parts.size(); ++part) {
      all.insert(all.end(), parts[part].forth.begin(), parts[part].forth.end());
      if (inner_ < size_) add_outermost(rank, part, all);
      all.insert(all.end(), parts[part].back.begin(), parts[part].back.end());
    }
    return all;
  }

 private:
  struct Parts {
    std::vector<Step> forth = {};
    std::vector<Step> back = {};
  };

  void add_outermost(Rank rank, std::uint32_t part, std::vector<Step>& program) const {
    // grid::build numbers chunks with the dimension that it takes first in front.
    Rank own = static_cast<Rank>(part) * inner_;
    for (Rank weight = inner_, stride = 1, i = 0; weight > 1; ++i) {
      const Rank size = spans_[static_cast<std::size_t>(i)].size;
      weight /= size;
      own += rank / stride % size * weight;
      stride *= size;
    }
    const auto chunk = static_cast<std::uint32_t>(own);
    const std::uint32_t round = rounds_inwards_ + part;
    program.push_back(
        steps::send(steps::around(rank + inner_, size_), inner_ == 1 ? input(chunk) : output(chunk), round));
    program.push_back(steps::recv(steps::around(rank - inner_, size_), output(chunk), round));
  }

  std::vector<Span> spans_;
  Rank size_;
  std::size_t parts_;
  Rank inner_ = 1;  // members up to the dimension in which a switch gives back the sum
  std::uint32_t rounds_inwards_ = 0;
  std::optional<Schedule> below_ = {};
};

// What a link carries of a message that stands for what a switch further in adds up, or copies.
double carried(const std::vector<Span>& spans, const Topology& topology, Rank from, Rank to, LinkNumber number) {
  const Link& link = topology.links[number];
  for (const Span& span : spans) {
    if (span.dimension != link.dimension || &span == &spans.back() || !span.adds) continue;
    const Rank ahead = (span.place(to) - span.place(from) + span.size) % span.size;
    const bool is_up = link.from < topology.world;
    return (ahead == 1) == is_up ? 1 : 1.0 / span.size;
  }
  return 1;
}

std::size_t parts_of(const std::vector<Span>& spans, Rank size, std::size_t slices) {
  const Rank inner = spans.back().adds ? size / spans.back().size : size;
  if (inner == 1) return 1;  // slices are enough
  return std::clamp<std::size_t>(slices, 1, std::max<std::size_t>(1, most_chunks / static_cast<std::size_t>(inner)));
}

}  // namespace

std::size_t slices_of_sum(double bytes, std::size_t slice_bytes) {
  return static_cast<std::size_t>(std::clamp(std::ceil(bytes / static_cast<double>(slice_bytes)), 1.0, most_parts));
}

SwitchSum summed_by_switches(const Topology& topology, const Grouping& group, std::size_t slices) {
  if (topology.switches == 0 || (names_a_shape(topology.name) && !shape_of(topology)))
    throw Error(ErrorKind::usage, fmt::format("{} has no switches that could add up gradients; take topology star, "
                                              "fat_tree:4 or a shape such as RI(4)_SW(8), with all of its cables",
                                              topology.name));
  const auto spans = spans_of(topology, group);
  const auto sum =
      std::make_shared<const Sum>(spans, group.size, spans.empty() ? 1 : parts_of(spans, group.size, slices));
  SwitchSum result{.schedule = in_each({.algorithm = std::string(in_network),
                                        .collective = Collective::all_reduce,
                                        .world = group.size,
                                        .chunks = sum->chunks(),
                                        .program = [sum](Rank rank) { return sum->program(rank); }},
                                       topology.world, {group}),
                   .topology = topology};
  const bool copies = std::ranges::any_of(spans, [&](const Span& span) { return span.adds && &span != &spans.back(); });
  if (copies)
    result.topology.carried = [spans, whole = std::make_shared<const Topology>(topology)](Rank from, Rank to,
                                                                                          LinkNumber link) {
      return carried(spans, *whole, from, to, link);
    };
  return result;
}

}  // namespace ranvier::plan

namespace ranvier {

SwitchSum summed_by_switches(const Topology& topology, double bytes, std::size_t slice_bytes) {
  return plan::summed_by_switches(topology, {.size = topology.world, .stride = 1},
                                  plan::slices_of_sum(bytes, slice_bytes));
}

}  // namespace ranvier
