// Who takes part in a run of workers of one host: how those that are left agree on that when others are lost, how
// workers that are started in the place of those join them, and where they all meet again.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/socket.h"
#include "launch.h"
#include "ranvier/error.h"
#include "ranvier/store.h"

namespace ranvier::train {

// Whether others are gone, or say so, and it is not this worker that cannot go on.
bool is_loss(const Error& why);

// Members keep their order, and newcomers stand behind them: the first one has been there for longest. Each process has
// a number of its own, and shows that it lives for as long as it does, whatever ends it, by a lock on a file. A meeting
// leaves a record of who takes part from there on, for which newcomers look.
class Membership {
 public:
  // `place`: where the workers meet first, as many as its world has. `restarts`: the most newcomers that there will be.
  // Throws Error{config} where it cannot be shown that this worker lives.
  Membership(const cli::WorldPlace& place, int restarts);

  bool is_newcomer() const { return number_ >= first_; }
  // Until a meeting has let a newcomer in; a member from the beginning is in. False: what the run is for is done.
  // Throws Error{peer_lost} where no member is left.
  bool wait_to_be_let_in();
  // Among the members, who meet there.
  const cli::WorldPlace& place() const { return place_; }
  // Of members that have nothing more to do: until the first of them has reported the result, or could not. False: it
  // is lost, or others meet anew, who had not come to the end when somebody was lost.
  bool wait_for_result() const;
  // Whether newcomers wait to be let in.
  bool is_awaited() const { return !waiting().empty(); }
  // Whether a member's process has ended; and, of members that meet, an Error{peer_lost} if one has.
  bool has_lost_any() const { return first_lost().has_value(); }
  void require_all() const;

  // All members that are left call. One of them, and where it is lost the next one, waits for the others until each has
  // come or is dead, `limit` at most, for it may compute and not know yet; lets in who waits; and then says who they
  // are. False: the run has ended meanwhile. Throws Error{peer_lost} where the others go on without this one, and
  // Error{timeout} where nobody says who they are.
  bool meet_anew(std::chrono::milliseconds limit);

  // Since the beginning: who has come in the place of others, and who has been lost.
  std::size_t come() const { return record_.newcomers.size(); }
  std::size_t lost() const { return static_cast<std::size_t>(first_) + come() - record_.members.size(); }

 private:
  struct Record {
    std::vector<int> members;    // by rank
    std::vector<int> newcomers;  // all that have ever been let in
  };

  static std::string text_of(const Record&);
  static Record record_from(const std::string& text);
  bool is_alive(int number) const;
  bool has_come(int number, int meeting, std::chrono::milliseconds limit) const;
  // There is a result, or nobody who could report one.
  bool has_ended() const;
  std::optional<Rank> first_lost() const;
  std::vector<int> waiting() const;
  // Held by the one that speaks, until it is lost or all have heard.
  Fd speakers_lock() const;
  Record gather(std::chrono::steady_clock::time_point deadline);
  // Whether this worker is among them.
  bool take_part_by(Record record);

  const cli::WorldPlace start_;
  const Rank first_;  // that there were
  const int most_;    // numbers that there can be
  const int number_;
  const std::unique_ptr<Store> store_;
  Fd sign_;  // locked
  int meetings_ = 0;
  Record record_;
  cli::WorldPlace place_;
};

}  // namespace ranvier::train
