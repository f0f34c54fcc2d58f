// The communicators of one process that know of each other. Each is an engine of its own, and a rank that does not come
// to a collective of one group is often in that of another.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/rank_names.h"
#include "engine/call_history.h"
#include "engine/flight_recorder.h"
#include "ranvier/error.h"

namespace ranvier::engine {

class Engine;

// Looked at where something has failed or is about to; any thread.
class Siblings {
 public:
  // Until it leaves, by which time its recorder is still there.
  void join(const Engine* engine, const std::string& name, const FlightRecorder& recorder,
            std::shared_ptr<const CallHistory> history, RankNames names = {});
  void leave(const Engine* engine);

  // What is under way in any of them.
  struct Call {
    std::uint32_t sequence = 0;
    std::uint64_t group = 0;  // see Answer::group
    bool is_message = false;
    double seconds = 0;  // since its start
    std::string text;    // "all_reduce #1 of group 'B'"
  };
  // Collectives first, the longest first; but for `asked` of `engine`.
  std::vector<Call> under_way(const Engine* engine, std::optional<std::uint32_t> asked) const;

  // Whether this process has called the collective of that number in a group; empty where it is not in that group.
  std::optional<bool> has_called(std::uint64_t group, std::uint32_t sequence) const;

  // `engine` has failed; the first time counts. `operation`: what was under way, "all_reduce #1 of group 'B'", which
  // may come later.
  void failed(const Engine* engine, const Error& why, const std::string& operation = {});
  // `rank`, by its number in the group of `engine`, has said goodbye.
  void departed(const Engine* engine, Rank rank);
  // Why a rank comes to no group any more: that a group has lost it, or that it has left the world.
  struct Loss {
    std::string why;
    std::chrono::steady_clock::time_point at;  // whoever leaves afterwards may do so because of it
  };
  // Of the rank of that number in the world, if any is known; who has left a group, or aborted it, may come to others.
  std::optional<Loss> loss_of(Rank world_rank) const;
  // Of a rank of `engine` that has left it, by its number there: why, as another communicator says it that was aborted
  // or has lost another rank; nothing as long as none does.
  std::optional<std::string> why_it_left(const Engine* engine, Rank rank) const;
  // It has left the world, too, or this is the world: nothing more will be heard of it.
  bool is_gone(const Engine* engine, Rank rank) const;
  // "; 1.2 s before, group 'A' failed: …", of the sibling of `engine` that failed first and before it, or nothing. A
  // timeout or a mismatch, since those come of what the program calls; the loss of a rank says the same everywhere.
  std::string failed_before(const Engine* engine) const;
  // " (1.2 s after all_reduce #1 of group 'B' failed)", of the last one that failed, or nothing.
  std::string after_failure() const;

  // The same on all ranks; 0 for a name that is empty.
  static std::uint64_t number_of(std::string_view name);

 private:
  struct Failure {
    Error why;
    bool may_spread;  // else others need not be told
    std::chrono::steady_clock::time_point at;
    std::string operation;
  };
  struct Member {
    std::string name;
    const FlightRecorder* recorder = nullptr;
    std::shared_ptr<const CallHistory> history;
    RankNames names;
    std::optional<Failure> failure = {};
    std::map<Rank, std::chrono::steady_clock::time_point> departed = {};
  };

  mutable std::mutex mutex_;
  std::map<const Engine*, Member> members_;
};

// "all_reduce #3 of group 'A'", as the name of a group stands behind that of a call; of one without a name nothing.
std::string of_group(const std::string& name);

}  // namespace ranvier::engine
