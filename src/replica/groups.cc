#include "replica/groups.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/fnv.h"

namespace ranvier::replica {
namespace {

std::size_t place(Rank rank) { return static_cast<std::size_t>(rank); }

}  // namespace

Team::Team(Communicator& everybody) : comm_(&everybody), members_(place(everybody.world())) {
  std::iota(members_.begin(), members_.end(), 0);
}
Team::Team(std::unique_ptr<Communicator> own, std::vector<Rank> members)
    : own_(std::move(own)), comm_(own_.get()), members_(std::move(members)) {}

bool Team::spans(const Groups& nodes) const {
  return std::ranges::any_of(members_, [&](Rank rank) { return nodes[place(rank)] != nodes[place(members_.front())]; });
}

std::pair<std::uint64_t, std::uint64_t> bytes_by_node(const Communicator& comm, const std::vector<Rank>& members,
                                                      const Groups& nodes) {
  std::pair<std::uint64_t, std::uint64_t> sum{0, 0};
  const int own = nodes[place(members[place(comm.rank())])];
  for (Rank peer = 0; peer < comm.world(); ++peer)
    (nodes[place(members[place(peer)])] == own ? sum.first : sum.second) += comm.bytes_sent_to(peer);
  return sum;
}

std::pair<std::uint64_t, std::uint64_t> Team::bytes(const Groups& nodes) const {
  return bytes_by_node(*comm_, members_, nodes);
}

Teams::Teams(Communicator& comm, std::vector<Groups> levels, Groups nodes)
    : comm_(comm),
      levels_(std::move(levels)),
      nodes_(std::move(nodes)),
      everybody_(comm),
      whole_(levels_.size()),
      leaders_(levels_.size()),
      whole_formed_(levels_.size()),
      leaders_formed_(levels_.size()) {}

// The first of its group at `level`.
bool Teams::leads(std::size_t level, Rank rank) const {
  const Groups& groups = levels_[level];
  return std::find(groups.begin(), groups.end(), groups[place(rank)]) - groups.begin() == rank;
}

Team* Teams::whole(std::size_t level) { return level == 0 ? nullptr : form(whole_, whole_formed_, level, false); }
Team* Teams::leaders(std::size_t level) { return form(leaders_, leaders_formed_, level, true); }

// Who is in which team all ranks can tell, so they take part in the splits or not alike.
Team* Teams::form(std::vector<std::unique_ptr<Team>>& teams, std::vector<bool>& formed, std::size_t level,
                  bool leaders) {
  const Groups& groups = levels_[level];
  const auto takes_part = [&](Rank rank) { return !leaders || leads(level - 1, rank); };
  bool is_everybody = std::ranges::all_of(groups, [&](int group) { return group == groups[0]; });
  for (Rank rank = 0; rank < comm_.world(); ++rank) is_everybody = is_everybody && takes_part(rank);
  if (is_everybody) return &everybody_;
  if (!formed[level]) {
    formed[level] = true;
    Groups colors = groups;
    for (Rank rank = 0; rank < comm_.world(); ++rank)
      if (!takes_part(rank)) colors[place(rank)] = -1;
    teams[level] = split(colors);
  }
  return teams[level].get();
}

std::unique_ptr<Team> Teams::split(const Groups& colors) {
  const int own = colors[place(comm_.rank())];
  auto comm = comm_.split(own);
  if (!comm) return nullptr;
  std::vector<Rank> members;
  for (Rank rank = 0; rank < comm_.world(); ++rank)
    if (colors[place(rank)] == own) members.push_back(rank);
  return std::make_unique<Team>(std::move(comm), std::move(members));
}

std::unique_ptr<Exchange> Teams::exchange_of_everybody(const std::string& spec) {
  std::vector<std::size_t> sizes(nodes_.size(), 0);
  for (const int node : nodes_) ++sizes[static_cast<std::size_t>(node)];
  const auto nodes = static_cast<std::size_t>(std::ranges::count_if(sizes, [](std::size_t size) { return size > 0; }));
  if (spec == "none" || nodes == 1 || nodes == nodes_.size()) return make_exchange(spec, comm_);
  if (!nodes_formed_) {
    nodes_formed_ = true;
    Groups inside = nodes_, first(nodes_.size(), -1);
    for (std::size_t rank = 0; rank < nodes_.size(); ++rank) {
      if (sizes[static_cast<std::size_t>(nodes_[rank])] == 1) inside[rank] = -1;
      if (std::ranges::find(nodes_, nodes_[rank]) - nodes_.begin() == static_cast<std::ptrdiff_t>(rank))
        first[rank] = 0;
    }
    node_ = split(inside);
    first_of_nodes_ = split(first);
  }
  const auto own = static_cast<double>(sizes[static_cast<std::size_t>(nodes_[place(comm_.rank())])]);
  return node_exchange(spec,
                       {.inside = node_ ? &node_->comm() : nullptr,
                        .across = first_of_nodes_ ? &first_of_nodes_->comm() : nullptr,
                        .share = own * static_cast<double>(nodes) / static_cast<double>(nodes_.size()),
                        .layout = fnv1a({reinterpret_cast<const char*>(nodes_.data()), nodes_.size() * sizeof(int)})});
}

std::size_t Teams::parts(std::size_t level) const {
  std::set<int> inner;
  const Groups& groups = levels_[level];
  for (std::size_t rank = 0; rank < groups.size(); ++rank)
    if (groups[rank] == groups[place(comm_.rank())]) inner.insert(levels_[level - 1][rank]);
  return inner.size();
}

double Teams::sum(std::size_t level, const std::vector<double>& by_rank) const {
  const Groups& groups = levels_[level];
  double sum = 0;
  for (std::size_t rank = 0; rank < groups.size(); ++rank)
    if (groups[rank] == groups[place(comm_.rank())]) sum += by_rank[rank];
  return sum;
}

// Those that this rank is in.
std::vector<const Team*> Teams::all() const {
  std::vector<const Team*> all{&everybody_};
  for (const auto* teams : {&whole_, &leaders_})
    for (const auto& team : *teams)
      if (team) all.push_back(team.get());
  for (const Team* team : {node_.get(), first_of_nodes_.get()})
    if (team != nullptr) all.push_back(team);
  return all;
}

std::pair<std::uint64_t, std::uint64_t> Teams::bytes() const {
  std::pair<std::uint64_t, std::uint64_t> sum{0, 0};
  for (const Team* team : all()) {
    const auto [inside, between] = team->bytes(nodes_);
    sum.first += inside;
    sum.second += between;
  }
  return sum;
}

LossCounts Teams::losses() const {
  LossCounts sum;
  for (const Team* team : all()) sum += team->comm().losses();
  return sum;
}

}  // namespace ranvier::replica
