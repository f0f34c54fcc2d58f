// The parameter server without its network: a shard of the parameters that takes gradients as they come, and the clocks
// that keep workers from running away from one another. Pure state machines; src/replica/parameter_server.cc gives them
// messages, tests every order of events.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ranvier/types.h"

namespace ranvier {

// How asynchronous workers and their servers work together.
struct ServerRule {
  // None may begin a step that puts it more than so many steps ahead of the slowest; none: no limit.
  std::optional<std::uint64_t> bound = {};
  // What a gradient counts that tau others have overtaken since its worker pulled.
  enum class Damping : std::uint8_t {
    share,      // its share of all samples: tau does not matter
    staleness,  // 1 / (tau + 1), where that is less: stale ones do less harm
    excess      // its share, divided by how much tau is above what so many workers always have
  };
  Damping damping = Damping::staleness;
  std::size_t workers = 0;  // excess: that push; 0: all
  // > 0: what the gradient has missed is estimated from its square (delay compensation).
  double compensation = 0;
  // > 0: so many ranks, the last ones, own all parameters and are no workers; else every rank is both.
  std::size_t servers = 0;
  // > 0: the parameters are cut into so many equal ranges, which the servers own in turn; else into one for each.
  std::size_t ranges = 0;
};
// How many of `world` ranks are workers. Throws Error{usage} where none is left.
Rank workers_of(const ServerRule& rule, Rank world);

// Workers push by groups, numbered from 0; where those are told by rank, this, as any below 0, stands for a rank that
// only serves.
inline constexpr int serves_only = -1;
// Whether a rank trains. Where nothing is said of it, it does.
constexpr bool trains(std::span<const int> groups, std::size_t rank) {
  return rank >= groups.size() || groups[rank] >= 0;
}

// Parameters that one server owns.
class ParameterShard {
 public:
  // Behind the workers come `guests`, by their numbers: they may leave out numbers of pushes. Every worker begins with
  // these values; `keeps_held`: for pull_change(), 4 bytes a value and worker.
  ParameterShard(std::vector<float> values, Rank workers, const ServerRule& rule, Rank guests = 0,
                 bool keeps_held = false);

  // x -= rate * weight * g, where the rule says the weight and what becomes of g; `share` is that of its samples in a
  // step of everybody's. `number` counts this worker's pushes from 1: one that has been applied already, sent again by
  // a worker that did not hear so, changes nothing. False for that.
  bool push(Rank worker, std::uint64_t number, double rate, double share, std::span<const float> gradient);
  // How many workers push from now on.
  void set_workers(std::size_t workers) { rule_.workers = workers; }
  // What `worker` begins its next step from.
  std::span<const float> pull(Rank worker);
  // The same for a worker that is told less than all of it: what it has held, and the caller brings it nearer.
  struct Change {
    std::span<const float> values;
    std::span<float> held;
  };
  Change pull_change(Rank worker);
  std::uint64_t pushes() const { return pushes_; }

 private:
  struct Worker {
    std::uint64_t last = 0;     // push of this worker that was applied
    std::uint64_t pulled = 0;   // pushes of all when it pulled
    std::vector<float> held{};  // what it pulled; empty where nobody asks, and for a guest that has not
  };
  double weight(double share, double overtaken) const;

  ServerRule rule_;
  const bool keeps_held_;
  std::vector<float> values_;
  std::vector<float> compensated_;  // the gradient of the last push
  const std::size_t own_workers_;
  std::vector<Worker> workers_;  // and guests
  std::uint64_t pushes_ = 0;
};

// Samples for a worker that works at its own pace.
struct SampleStart {
  std::uint64_t first = 0;  // samples from this one on are this worker's and nobody else's
  std::uint64_t count = 0;  // so many; 0: no more
  std::uint64_t done = 0;   // samples of all workers that have had their effect
};

// Stale-synchronous clocks. Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter
// Server", NeurIPS 2013: the step that the fastest is in comes at most `bound` after the
// one that the slowest is in.
class StaleClocks {
 public:
  StaleClocks(Rank workers, std::optional<std::uint64_t> bound)
      : bound_(bound), complete_(static_cast<std::size_t>(workers), 0), rests_(complete_.size(), false) {}
  void ended_step(Rank worker) { ++complete_[static_cast<std::size_t>(worker)]; }
  // It takes no steps for now, so nobody waits for it; once all rest, nobody is ahead of anybody any more.
  void rests(Rank worker);
  void goes_on(Rank worker) { rests_[static_cast<std::size_t>(worker)] = false; }
  bool may_begin(Rank worker) const;

 private:
  const std::optional<std::uint64_t> bound_;
  std::vector<std::uint64_t> complete_;  // steps, by worker
  std::vector<bool> rests_;
};

// Who may begin which samples: each is given out once, none beyond what all are to stop at.
class SampleGate {
 public:
  SampleGate(Rank workers, std::optional<std::uint64_t> bound, std::uint64_t before)
      : clocks_(workers, bound), done_(before), next_(before) {}
  // `most` 0: the worker rests until it asks again, and gets none, at once.
  void asks(Rank worker, std::uint64_t stop_at, std::uint64_t most);
  void ended_step(Rank worker, std::uint64_t samples);
  struct Decision {
    Rank worker;
    SampleStart start;
  };
  // Those whose wait has an end now.
  std::vector<Decision> decide();

 private:
  struct Waiting {
    Rank worker;
    std::uint64_t stop_at;
    std::uint64_t most;
  };
  StaleClocks clocks_;
  std::uint64_t done_;
  std::uint64_t next_;  // sample
  std::vector<Waiting> waiting_;
};

}  // namespace ranvier
