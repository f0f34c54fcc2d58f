#include "plan/simulate/shifts.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string_view>

#include "ranvier/network.h"
#include "ranvier/text.h"

namespace ranvier::plan {

// Without cables, names say so in words.
std::optional<NetworkShape> shape_of(const Topology& topology) {
  if (!names_a_shape(topology.name) || topology.name.find(' ') != std::string::npos) return std::nullopt;
  return parse_network(topology.name);
}

std::vector<Rank> grid_dims(const Topology& topology) {
  std::vector<Rank> dims;
  if (const auto shape = shape_of(topology)) {
    for (const auto& each : shape->dimensions) dims.insert(dims.begin(), each.size);
    return dims;
  }
  const auto colon = topology.name.find(':');
  if (!topology.name.starts_with("torus") || colon == std::string::npos) return dims;
  for (std::size_t at = colon + 1; at < topology.name.size();) {
    std::size_t used = 0;
    dims.push_back(static_cast<Rank>(std::stol(topology.name.substr(at), &used)));
    at += used + 1;
  }
  return dims;
}

std::vector<std::uint32_t> link_kinds(const Group& group, const Topology& topology) {
  std::vector<LinkKind> of_link;
  for (LinkNumber number = 0; number < topology.links.size(); ++number)
    of_link.push_back(kind_of(group, topology, number));
  const std::set<LinkKind> in_order(of_link.begin(), of_link.end());
  const std::vector<LinkKind> kinds(in_order.begin(), in_order.end());
  std::vector<std::uint32_t> places;
  for (const LinkKind& kind : of_link)
    places.push_back(static_cast<std::uint32_t>(std::ranges::lower_bound(kinds, kind) - kinds.begin()));
  return places;
}

namespace {

// Exclusive or.
std::vector<Rank> bits_of(Rank world) {
  return std::vector<Rank>(static_cast<std::size_t>(std::countr_zero(static_cast<unsigned>(world))), 2);
}

// How a fat tree can be shifted. Its routes go by digits of the destination, and so do its switches: where it has
// powers of two of everything, single bits may be turned around; without oversubscription, digits may be shifted. None
// for other networks with several switches.
std::vector<std::vector<Rank>> grids_of_tree(const Topology& topology) {
  std::vector<std::vector<Rank>> grids;
  const std::string_view name = topology.name;
  constexpr std::string_view tree = "fat_tree:";
  constexpr std::string_view narrower = ",oversubscription=";
  if (!name.starts_with(tree)) return grids;
  const std::string_view numbers = name.substr(tree.size());
  const auto comma = numbers.find(narrower);
  const auto arity = parse_number<Rank>(numbers.substr(0, comma));
  const auto times = comma == std::string_view::npos ? 1 : parse_number<Rank>(numbers.substr(comma + narrower.size()));
  if (!arity || !times) return grids;
  const auto is_binary = [](Rank number) { return std::has_single_bit(static_cast<unsigned>(number)); };
  if (is_binary(topology.world) && is_binary(*arity) && is_binary(*times)) grids.push_back(bits_of(topology.world));
  std::vector<Rank> digits;
  std::int64_t span = 1;
  for (; span < topology.world; span *= *arity) digits.push_back(*arity);
  if (*times == 1 && span == topology.world) grids.push_back(std::move(digits));
  return grids;
}

// The grid that both are made of by joining neighbouring dimensions, if there is one: a switch or a full connection
// looks the same along each part of it.
std::optional<std::vector<Rank>> common(const std::vector<Rank>& one, const std::vector<Rank>& other) {
  std::vector<Rank> borders{1};
  for (const auto* grid : {&one, &other}) {
    Rank stride = 1;
    for (std::size_t i = grid->size(); i-- > 0;) borders.push_back(stride *= (*grid)[i]);
  }
  std::ranges::sort(borders);
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  std::vector<Rank> dims;
  for (std::size_t i = 1; i < borders.size(); ++i) {
    if (borders[i] % borders[i - 1] != 0) return std::nullopt;
    dims.insert(dims.begin(), borders[i] / borders[i - 1]);
  }
  return dims;
}

}  // namespace

std::vector<std::vector<Rank>> grids_of(const Job& job) {
  const Rank world = job.schedule.world;
  std::vector<std::vector<Rank>> grids;
  const auto add = [&](const std::vector<Rank>& dims) {
    if (!dims.empty() && std::ranges::count(grids, dims) == 0) grids.push_back(dims);
  };
  const auto dims = grid_dims(job.topology);
  const auto add_with_network = [&](const std::vector<Rank>& others) {
    if (dims.empty() || others.empty()) return;
    if (const auto both = common(dims, others)) add(*both);
  };
  // Groups, and dimensions along which they work.
  std::vector<Rank> own = job.schedule.grid.dims;
  std::erase(own, 1);
  if (job.topology.switches > 1) {
    grids = grids_of_tree(job.topology);
    add_with_network(job.options.grid);
    add_with_network(own);
    add(dims);
    if (!dims.empty()) add({world});
  } else {
    add({world});
    if (std::has_single_bit(static_cast<unsigned>(world))) add(bits_of(world));
    if (dims.size() > 1) add(dims);
    add(job.options.grid);
    add(own);
    add_with_network(job.options.grid);
    add_with_network(own);
  }
  return grids;
}

namespace {

std::uint64_t outline_of(const Job& job, const Group& group, Rank rank, std::size_t most_steps) {
  const bool has_elements = job.count >= (moves_whole_vector(job.schedule.collective) ? job.schedule.chunks : 1);
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a
  const auto add = [&hash](std::uint64_t number) { hash = (hash ^ number) * 1099511628211u; };
  const auto program = job.schedule.program(rank);
  for (const Step& step : std::span(program).first(std::min(most_steps, program.size()))) {
    add(static_cast<std::uint64_t>(step.action));
    add(step.chunks);
    if (!has_elements || step.peer < 0) continue;
    const bool sends = step.action == Action::send;
    add(static_cast<std::uint64_t>(sends ? group.difference(rank, step.peer) : group.difference(step.peer, rank)));
  }
  return hash;
}

}  // namespace

std::uint64_t outline_of(const Job& job, const Group& group, Rank rank) {
  return outline_of(job, group, rank, std::numeric_limits<std::size_t>::max());
}

std::uint64_t beginning_of(const Job& job, const Group& group, Rank rank) {
  constexpr std::size_t some_steps = 256;
  return outline_of(job, group, rank, some_steps);
}

std::optional<Shifts> shifts_of(const Job& job, const Sights& sights, const std::vector<Rank>& dims, Rank least,
                                const std::vector<Rank>& ranks, bool& is_too_much) {
  const Group all({dims, std::vector<Rank>(dims.size(), 1)});
  const Rank world = job.schedule.world;
  struct Seen {
    Doing doing;
    Sights::Sight sight;
  };
  struct Known {
    Rank rank;
    std::uint64_t beginning;
    std::optional<std::uint64_t> outline = {};
    std::optional<Seen> seen = {};  // made where outlines do not tell
  };
  const auto seen_from = [&](Rank rank) {
    Doing doing(job, all, rank);
    auto sight = sights.of(rank, doing, all);
    return Seen{std::move(doing), std::move(sight)};
  };
  const std::size_t messages = std::max<std::size_t>(1, messages_of_rank(job, ranks.front()));
  const Rank most = std::min({most_kinds, world / 2, static_cast<Rank>(job.most_folded / messages)});
  is_too_much |= most < std::min(most_kinds, world / 2);
  if (most < 2) return std::nullopt;
  std::vector<Known> known;
  for (const Rank rank : ranks) known.push_back({rank, beginning_of(job, all, rank)});
  Shifts shifts{dims, {}};
  Rank kinds = 1;
  for (Rank stride = world; const Rank size : dims) {
    stride /= size;
    const auto leaves_all_alike = [&](Rank step) {
      const auto moved = [&](const Known& each) {
        const Rank place = each.rank / stride % size;
        return each.rank + ((place + step) % size - place) * stride;
      };
      return std::ranges::all_of(
                 known, [&](const Known& each) { return beginning_of(job, all, moved(each)) == each.beginning; }) &&
             std::ranges::all_of(known,
                                 [&](Known& each) {
                                   if (!each.outline) each.outline = outline_of(job, all, each.rank);
                                   return outline_of(job, all, moved(each)) == *each.outline;
                                 }) &&
             std::ranges::all_of(known, [&](Known& each) {
               if (!each.seen) each.seen = seen_from(each.rank);
               const Seen other = seen_from(moved(each));
               return other.sight == each.seen->sight && other.doing.is_like(each.seen->doing);
             });
    };
    Rank step = std::min(least, size);
    while (step < size && (size % step != 0 || !leaves_all_alike(step)))
      if (++step > most) return std::nullopt;
    shifts.steps.push_back(step);
    if ((kinds *= step) > most) return std::nullopt;
  }
  return shifts;
}

}  // namespace ranvier::plan
