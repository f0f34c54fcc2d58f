// Training of which no step is everybody's: each worker, or group of workers of similar speed, at its own pace from one
// evaluation to the next.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/exchange.h"
#include "ranvier/sync.h"
#include "ranvier/worker_speeds.h"
#include "replica/team_pool.h"

namespace ranvier::trainer {

// What the worker itself does.
struct OwnPaceWorker {
  // Computes the gradients of so many samples from this one on, counted from the start of training; zeros for none.
  std::function<void(std::uint64_t first, std::uint64_t count)> compute;
  // Computes as long as for so many samples, for its speed and nothing else.
  std::function<void(std::uint64_t count)> try_pace;
  // The learning rate once so many samples are behind all workers, of steps with its momentum; and of servers, which
  // have none, as much longer as momentum would have made them.
  std::function<double(std::uint64_t done)> rate;
  std::function<double(std::uint64_t done)> server_rate;
  double momentum = 0;
  // Takes the optimizer's step, of which servers have none.
  std::function<void(std::uint64_t done)> step;
  // Its parameters are what its last step has made of them: others may go on from there if it is lost with so many
  // samples behind all.
  std::function<void(std::uint64_t done)> keep;
  // How fast each rank has computed lately: every rank calls.
  std::function<std::vector<PaceReport>()> paces;
  std::span<float> gradients;
  std::span<float> parameters;
};

class OwnPaceTraining {
 public:
  virtual ~OwnPaceTraining() = default;
  // What comes before the first run(): speeds are measured, groups are formed, and servers are there. All ranks call.
  virtual void prepare() = 0;
  // Until all workers together have used so many samples. The next call has to wait for all ranks to have looked.
  virtual void run(std::uint64_t stop_at) = 0;
  // No more calls come; every rank says so.
  virtual void leave() = 0;
  virtual std::uint64_t exchanges() const = 0;          // that this worker had a part in …
  virtual std::uint64_t averages() const { return 0; }  // … and those among its group, before these
  virtual std::chrono::nanoseconds waited() const = 0;  // for its turn and for what others hold
  virtual std::vector<std::size_t> shares() const = 0;  // by rank: samples of a step
  virtual std::vector<int> groups() const = 0;          // by rank: who exchanges together
  // Of its codec: as Exchange has them. For a checkpoint what save() gave is restored before the first run().
  virtual std::uint64_t plain_buckets() const { return 0; }
  virtual std::size_t state_bytes() const { return 0; }
  virtual std::vector<std::byte> save() { return {}; }
  virtual void restore(ConstBytes) {}
};

// Until the slowest has ended its last step, whatever that takes; of ranks that only serve, from one evaluation to the
// next. Heartbeats find out who has died meanwhile.
inline constexpr std::chrono::hours longest_wait{24 * 7};

struct OwnPaceStart {
  std::size_t samples = 1;  // of all workers in a step that they take together
  std::uint64_t done = 0;   // samples that all have used before
  std::uint64_t seed = 0;
  std::uint16_t serve = 0;                         // > 0: the port at which rank 0 lets guests push and pull
  std::shared_ptr<replica::TeamPool> groups = {};  // of the world
  WorkerSpeeds speeds = {};                        // as far as they are known
  std::string compress = "none";
  std::vector<Tensor> tensors = {};  // that the parameters are of
};

// Null for a policy whose steps are everybody's. All ranks call with the same policy, parameters and start. `comm`
// outlives this.
std::unique_ptr<OwnPaceTraining> own_pace_training(Communicator& comm, const SyncPolicy& policy, OwnPaceWorker worker,
                                                   const OwnPaceStart& start);

// Begins to form in `start.groups` what own_pace_training() will ask of it by the speeds there. All ranks call.
void prepare_own_pace(const SyncPolicy& policy, const OwnPaceStart& start);

// One file each: by parameter servers, and by averages of two.
std::unique_ptr<OwnPaceTraining> server_training(Communicator& comm, const SyncPolicy& policy, OwnPaceWorker worker,
                                                 const OwnPaceStart& start);
std::unique_ptr<OwnPaceTraining> peer_training(Communicator& comm, OwnPaceWorker worker, const OwnPaceStart& start);

}  // namespace ranvier::trainer
