// Which of one rank's groups average what, by the levels of a policy.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ranvier/exchange.h"
#include "replica/team_pool.h"

namespace ranvier::replica {

class Teams {
 public:
  // `levels` as arrange() gives them.
  Teams(std::shared_ptr<TeamPool> pool, std::vector<Groups> levels, Groups nodes);

  // All of this rank's group at `level`; of level 0, where each is alone, null. Every rank calls when any does: here
  // and in leaders(), where teams are formed that the pool has not.
  Team* whole(std::size_t level);
  // Of the groups of `level - 1` in this rank's group of `level` the first rank each; null if this rank is none of
  // them.
  Team* leaders(std::size_t level);
  // Whom these take, for TeamPool; nothing where that is nobody or everybody.
  enum class Part : bool { whole, leaders };
  std::optional<Groups> colors(Part part, std::size_t level) const;
  // What averages by a codec over everybody: between nodes only, where there are several and some have several ranks.
  // Every rank calls.
  std::unique_ptr<Exchange> exchange_of_everybody(const std::string& spec);
  // Whom that takes: those of a node, and the first ranks of all nodes. None where it takes everybody.
  std::vector<Groups> colors_of_everybody(const std::string& spec) const;
  // How many groups of `level - 1` this rank's group of `level` holds.
  std::size_t parts(std::size_t level) const;
  // The sum over this rank's group of `level` of what every rank has.
  double sum(std::size_t level, const std::vector<double>& by_rank) const;

  const Groups& nodes() const { return nodes_; }
  TeamPool& pool() const { return *pool_; }

 private:
  bool leads(std::size_t level, Rank rank) const;
  Team* team(Part part, std::size_t level);
  std::vector<std::size_t> sizes_of_nodes() const;

  const std::shared_ptr<TeamPool> pool_;
  const std::vector<Groups> levels_;
  const Groups nodes_;
};

}  // namespace ranvier::replica
