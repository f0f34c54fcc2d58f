// The links of a simulated world: messages under way, what has arrived, and the virtual clock. It has no threads:
// whoever has the turn calls it (see simulated_turns.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "ranvier/simulated.h"
#include "transport/simulated_random.h"

namespace ranvier::simulated {

using Time = std::chrono::nanoseconds;  // since the start of the world

class Network {
 public:
  Network(Rank world, const SimulationOptions& options);

  Rank world() const { return world_; }
  const SimulationOptions& options() const { return options_; }
  Random& random() { return random_; }

  // ---- What a transport does, for `self`. See Transport for their meaning.
  std::size_t try_send(Rank self, Rank to, Lane, ConstBytes head, ConstBytes body);
  bool sent(Rank self, Rank to, Lane);
  ConstBytes try_recv(Rank self, Rank from, Lane, Bytes into);
  void release(Rank self, Rank from, Lane, std::size_t bytes);
  // Drops what `self` has under way whose bytes are still in its caller's memory.
  void forget_callers_memory(Rank self);

  // ---- Time.
  Time now() const { return now_; }
  // When something happens next that no rank does; nothing if all is quiet.
  std::optional<Time> next_event();
  // Moves the clock, and does what happens until then.
  void advance_to(Time);

  // ---- Faults.
  void leave(Rank self) { ranks_[index(self)].left = true; }
  bool has_crashed(Rank rank) const { return crashed_ && options_.crash->rank == rank; }
  // Throws Error{aborted} on the crashed rank, and Error{peer_lost} on the others once they have noticed.
  void check_faults(Rank self) const;

  // ---- What the taking of turns must know.
  // Whether something has happened to `self` since the last time that this was asked.
  bool take_wake(Rank self);
  bool woken(Rank self) const { return ranks_[index(self)].woken; }
  // Grows whenever anything moves.
  std::uint64_t moves() const { return moves_; }
  std::uint64_t delivered() const { return delivered_; }

  // "24 B from rank 1 to rank 0 on lane 2", of every link whose receiver does not read what it holds; for people.
  std::string unread() const;

  // Mixes an event into the trace.
  void note(std::uint64_t what, std::uint64_t who, std::uint64_t size);
  std::uint64_t trace() const { return trace_; }

 private:
  struct Message {
    std::uint64_t id = 0;
    std::vector<std::byte> bytes;  // of those, [0, used) have been read
    std::size_t used = 0;
    ConstBytes unread;       // what of the sender's memory is read on arrival
    std::size_t slices = 1;  // how many of the link's it takes until it has been read
  };
  struct Link {
    std::list<Message> under_way;
    std::list<Message> arrived;
    Time last_arrival{};
    std::size_t slices = 0;  // taken by all of these
    bool view_kept = false;  // a view was handed out and nothing of it released
  };
  struct Arrival {
    Time at;
    std::uint64_t id;
    std::size_t link;
    friend bool operator>(const Arrival& a, const Arrival& b) { return a.at != b.at ? a.at > b.at : a.id > b.id; }
  };
  struct RankState {
    bool woken = false;
    bool left = false;
  };

  static std::size_t index(Rank rank) { return static_cast<std::size_t>(rank); }
  std::size_t link_index(Rank from, Rank to, Lane lane) const {
    return (index(from) * index(world_) + index(to)) * lane_count + lane;
  }
  Rank sender_of(std::size_t link) const { return static_cast<Rank>(link / lane_count / index(world_)); }
  Rank receiver_of(std::size_t link) const { return static_cast<Rank>(link / lane_count % index(world_)); }

  Time draw_delay();
  void wake(Rank rank);
  void arrive(const Arrival&);
  template <class Which>
  void drop(Link&, Which);
  bool is_stale(const Arrival&) const;
  void crash();
  bool crash_ahead() const;

  Rank world_;
  SimulationOptions options_;
  Random random_;
  Time now_{};
  std::vector<Link> links_;
  std::vector<RankState> ranks_;
  std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> arrivals_;
  std::uint64_t next_id_ = 0;
  std::uint64_t moves_ = 0;
  std::uint64_t delivered_ = 0;
  std::uint64_t trace_ = 0xcbf29ce484222325;
  bool crashed_ = false;
  bool noticed_ = false;
};

}  // namespace ranvier::simulated
