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
};

// Parameters that one server owns.
class ParameterShard {
 public:
  ParameterShard(std::vector<float> values, Rank workers, const ServerRule& rule);

  // x -= rate * weight * g, where the rule says the weight and what becomes of g; `share` is that of its samples in a
  // step of everybody's. `number` counts this worker's pushes from 1: one that has been applied already, sent again by
  // a worker that did not hear so, changes nothing. False for that.
  bool push(Rank worker, std::uint64_t number, double rate, double share, std::span<const float> gradient);
  // How many workers push from now on.
  void set_workers(std::size_t workers) { rule_.workers = workers; }
  // What `worker` begins its next step from.
  std::span<const float> pull(Rank worker);
  std::uint64_t pushes() const { return pushes_; }

 private:
  struct Worker {
    std::uint64_t last = 0;     // push of this worker that was applied
    std::uint64_t pulled = 0;   // pushes of all when it pulled
    std::vector<float> held{};  // what it pulled, for compensation
  };
  double weight(double share, double overtaken) const;

  ServerRule rule_;
  std::vector<float> values_;
  std::vector<Worker> workers_;
  std::uint64_t pushes_ = 0;
};

// Stale-synchronous clocks. Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter
// Server", NeurIPS 2013: the step that the fastest is in comes at most `bound` after the
// one that the slowest is in.
class StaleClocks {
 public:
  StaleClocks(Rank workers, std::optional<std::uint64_t> bound)
      : bound_(bound), complete_(static_cast<std::size_t>(workers), 0) {}
  void ended_step(Rank worker) { ++complete_[static_cast<std::size_t>(worker)]; }
  bool may_begin(Rank worker) const;

 private:
  const std::optional<std::uint64_t> bound_;
  std::vector<std::uint64_t> complete_;  // steps, by worker
};

}  // namespace ranvier
