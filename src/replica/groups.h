// The communicators of one rank's groups, and what each has carried inside nodes and between them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ranvier/exchange.h"
#include "replica/places.h"

namespace ranvier::replica {

// Bytes that this rank has sent by `comm`, whose ranks are `members` of the world, to ranks of its own node, and to
// others.
std::pair<std::uint64_t, std::uint64_t> bytes_by_node(const Communicator& comm, const std::vector<Rank>& members,
                                                      const Groups& nodes);

// Some ranks of the world and how they talk.
class Team {
 public:
  // Everybody.
  explicit Team(Communicator& everybody);
  Team(std::unique_ptr<Communicator> own, std::vector<Rank> members);

  Communicator& comm() const { return *comm_; }
  std::size_t size() const { return members_.size(); }
  bool spans(const Groups& nodes) const;
  // Bytes that this rank has sent to ranks of its own node, and to others.
  std::pair<std::uint64_t, std::uint64_t> bytes(const Groups& nodes) const;

 private:
  std::unique_ptr<Communicator> own_;
  Communicator* comm_;
  std::vector<Rank> members_;
};

class Teams {
 public:
  // `levels` as arrange() gives them.
  Teams(Communicator& comm, std::vector<Groups> levels, Groups nodes);

  // All of this rank's group at `level`; of level 0, where each is alone, null. Every rank calls when any does: here
  // and in leaders(), where teams are formed.
  Team* whole(std::size_t level);
  // Of the groups of `level - 1` in this rank's group of `level` the first rank each; null if this rank is none of
  // them.
  Team* leaders(std::size_t level);
  // What averages by a codec over everybody: between nodes only, where there are several and some have several ranks.
  // Every rank calls.
  std::unique_ptr<Exchange> exchange_of_everybody(const std::string& spec);
  // How many groups of `level - 1` this rank's group of `level` holds.
  std::size_t parts(std::size_t level) const;
  // The sum over this rank's group of `level` of what every rank has.
  double sum(std::size_t level, const std::vector<double>& by_rank) const;

  const Groups& nodes() const { return nodes_; }
  std::pair<std::uint64_t, std::uint64_t> bytes() const;
  LossCounts losses() const;

 private:
  bool leads(std::size_t level, Rank rank) const;
  std::vector<const Team*> all() const;
  // One by each color, null on ranks below 0.
  std::unique_ptr<Team> split(const Groups& colors);
  Team* form(std::vector<std::unique_ptr<Team>>& teams, std::vector<bool>& formed, std::size_t level, bool leaders);

  Communicator& comm_;
  const std::vector<Groups> levels_;
  const Groups nodes_;
  Team everybody_;
  std::vector<std::unique_ptr<Team>> whole_;
  std::vector<std::unique_ptr<Team>> leaders_;
  // For exchange_of_everybody(): of this rank's node, and of the first ranks of all nodes.
  std::unique_ptr<Team> node_;
  std::unique_ptr<Team> first_of_nodes_;
  bool nodes_formed_ = false;
  std::vector<bool> whole_formed_;
  std::vector<bool> leaders_formed_;
};

}  // namespace ranvier::replica
