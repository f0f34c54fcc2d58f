// Groups of a world's ranks, each of which is formed once, for whoever asks for it, and kept: connections take longer
// than steps do. Or beforehand, in a thread of its own, while training goes on.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "ranvier/communicator.h"
#include "replica/places.h"

namespace ranvier::replica {

// Some ranks of the world and how they talk.
class Team {
 public:
  // Everybody.
  explicit Team(Communicator& everybody);
  Team(std::unique_ptr<Communicator> own, std::vector<Rank> members);

  Communicator& comm() const { return *comm_; }
  std::size_t size() const { return members_.size(); }
  bool spans(const Groups& nodes) const;
  // Adds what this rank has sent to each of them to `by_rank`, of the world: bytes.
  void add_sent(std::vector<std::uint64_t>& by_rank) const;

 private:
  std::unique_ptr<Communicator> own_;
  Communicator* comm_;
  std::vector<Rank> members_;
};

// Every rank calls what follows at the same places of its program, with the same.
class TeamPool {
 public:
  // Of `comm` there is one, whose groups have numbers; `comm` outlives this.
  explicit TeamPool(Communicator& comm)
      : comm_(comm), everybody_(comm), sent_before_(static_cast<std::size_t>(comm.world())) {}
  // What is being formed is waited for.
  ~TeamPool() = default;
  TeamPool(const TeamPool&) = delete;
  TeamPool& operator=(const TeamPool&) = delete;

  Communicator& comm() const { return comm_; }
  Team& everybody() { return everybody_; }
  // Those that have this rank's color; null where that is below 0, of ranks that are in no group.
  Team* team(const Groups& colors);

  // Begins to form those of these that there are not, and returns.
  void prepare(const std::vector<Groups>& colors);
  // Whether that is done on all ranks. `later`: nobody waits, what is said is what ranks told each other when they
  // called before, so that it takes two calls at least; throws what has failed of it here.
  enum class Hear : bool { later, now };
  bool all_are_ready(Hear hear);
  // Nobody uses any other team any more: connections are no longer held for these.
  void keep_only(const Groups& colors);

  // How many groups have been asked for that it had not.
  std::uint64_t asked() const { return number_; }
  // That this rank has sent by all teams so far, everybody's among them, to ranks of its own node, and to others.
  std::pair<std::uint64_t, std::uint64_t> bytes(const Groups& nodes) const;
  LossCounts losses() const;

 private:
  using Formed = std::map<Groups, std::unique_ptr<Team>>;

  std::unique_ptr<Team> form(const Groups& colors, std::uint64_t tag) const;
  void take_formed();
  void tell();

  Communicator& comm_;
  Team everybody_;
  Formed teams_;
  std::uint64_t number_ = 0;                // of groups so far
  std::vector<std::uint64_t> sent_before_;  // by teams that have gone, to each rank
  LossCounts losses_before_;

  // What is being formed.
  bool is_forming_ = false;
  enum class State : std::int64_t { failed = -1, forming, formed };
  std::atomic<State> state_ = State::formed;
  Formed formed_;
  std::exception_ptr failure_;
  // What ranks tell each other: of whom knows least. It may be under way when this goes.
  std::shared_ptr<std::array<std::int64_t, 1>> told_;
  std::optional<Work> telling_;
  std::jthread thread_;  // the last: it goes first
};

}  // namespace ranvier::replica
