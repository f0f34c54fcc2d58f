#include "replica/groups.h"

#include <algorithm>
#include <set>

#include "base/fnv.h"

namespace ranvier::replica {
namespace {

std::size_t place(Rank rank) { return static_cast<std::size_t>(rank); }

}  // namespace

Teams::Teams(std::shared_ptr<TeamPool> pool, std::vector<Groups> levels, Groups nodes)
    : pool_(std::move(pool)), levels_(std::move(levels)), nodes_(std::move(nodes)) {}

// The first of its group at `level`.
bool Teams::leads(std::size_t level, Rank rank) const {
  const Groups& groups = levels_[level];
  return std::find(groups.begin(), groups.end(), groups[place(rank)]) - groups.begin() == rank;
}

Team* Teams::whole(std::size_t level) { return level == 0 ? nullptr : team(Part::whole, level); }
Team* Teams::leaders(std::size_t level) { return team(Part::leaders, level); }

// Who is in which team all ranks can tell.
Team* Teams::team(Part part, std::size_t level) {
  const auto some = colors(part, level);
  return some ? pool_->team(*some) : &pool_->everybody();
}

std::optional<Groups> Teams::colors(Part part, std::size_t level) const {
  if (level == 0) return std::nullopt;
  Groups colors = levels_[level];
  bool is_everybody = std::ranges::all_of(colors, [&](int group) { return group == colors[0]; });
  for (Rank rank = 0; part == Part::leaders && rank < static_cast<Rank>(colors.size()); ++rank) {
    if (leads(level - 1, rank)) continue;
    colors[place(rank)] = -1;
    is_everybody = false;
  }
  if (is_everybody) return std::nullopt;
  return colors;
}

std::vector<std::size_t> Teams::sizes_of_nodes() const {
  std::vector<std::size_t> sizes(nodes_.size(), 0);
  for (const int node : nodes_) ++sizes[static_cast<std::size_t>(node)];
  return sizes;
}

std::vector<Groups> Teams::colors_of_everybody(const std::string& spec) const {
  const auto sizes = sizes_of_nodes();
  const auto nodes = static_cast<std::size_t>(std::ranges::count_if(sizes, [](std::size_t size) { return size > 0; }));
  if (spec == "none" || nodes == 1 || nodes == nodes_.size()) return {};
  Groups inside = nodes_, first(nodes_.size(), -1);
  for (std::size_t rank = 0; rank < nodes_.size(); ++rank) {
    if (sizes[static_cast<std::size_t>(nodes_[rank])] == 1) inside[rank] = -1;
    if (std::ranges::find(nodes_, nodes_[rank]) - nodes_.begin() == static_cast<std::ptrdiff_t>(rank)) first[rank] = 0;
  }
  return {inside, first};
}

std::unique_ptr<Exchange> Teams::exchange_of_everybody(const std::string& spec) {
  const auto colors = colors_of_everybody(spec);
  if (colors.empty()) return make_exchange(spec, pool_->comm());
  Team* const inside = pool_->team(colors[0]);
  Team* const first_of_nodes = pool_->team(colors[1]);
  const auto own = static_cast<double>(sizes_of_nodes()[static_cast<std::size_t>(nodes_[place(pool_->comm().rank())])]);
  const auto nodes = static_cast<double>(std::ranges::count(colors[1], 0));
  return node_exchange(spec,
                       {.inside = inside != nullptr ? &inside->comm() : nullptr,
                        .across = first_of_nodes != nullptr ? &first_of_nodes->comm() : nullptr,
                        .share = own * nodes / static_cast<double>(nodes_.size()),
                        .layout = fnv1a({reinterpret_cast<const char*>(nodes_.data()), nodes_.size() * sizeof(int)})});
}

std::size_t Teams::parts(std::size_t level) const {
  std::set<int> inner;
  const Groups& groups = levels_[level];
  for (std::size_t rank = 0; rank < groups.size(); ++rank)
    if (groups[rank] == groups[place(pool_->comm().rank())]) inner.insert(levels_[level - 1][rank]);
  return inner.size();
}

double Teams::sum(std::size_t level, const std::vector<double>& by_rank) const {
  const Groups& groups = levels_[level];
  double sum = 0;
  for (std::size_t rank = 0; rank < groups.size(); ++rank)
    if (groups[rank] == groups[place(pool_->comm().rank())]) sum += by_rank[rank];
  return sum;
}

}  // namespace ranvier::replica
