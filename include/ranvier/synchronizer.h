// One worker's part of a synchronization policy: it asks the policy what to average, forms the groups that takes and
// does it, to parameters and gradients that lie in memory as plain floats.
//
//   Synchronizer sync(comm, {.sync = "node:16", .run = {.steps_per_epoch = 468, .steps = 1872}});
//   sync.begin(parameters);
//   for (step = 0; …; ++step) {
//     const bool shared = sync.begin_step(step);
//     …                                            // gradients, averaged by sync.gradients() where `shared`
//     …                                            // the optimizer changes `parameters`
//     sync.end_step(step + 1, learning_rate, parameters);
//   }
//   sync.end(parameters);
//
// Workers at a pace of their own (async, ssp, group, ad-psgd) meet in parameter_server.h and peer_average.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/exchange.h"
#include "ranvier/sync.h"

namespace ranvier {

namespace replica {
class TeamPool;
}

struct SynchronizerOptions {
  std::string sync = "bsp";  // spec of a SyncPolicy
  std::string compress =
      "none";  // spec of an Exchange: of how far parameters have moved, and of gradients that all ranks average
  std::string place = {};  // "node=2": so many nodes of consecutive ranks; else nodes are hosts
  double samples = 1;      // behind this rank's gradients of a step: its weight in every average
  SyncContext run = {};
  // Of this world, with the groups that others have formed, which one with other options goes on with; null: its own.
  std::shared_ptr<replica::TeamPool> groups = {};
};

// Of each of the policy's levels, and before them of level 0, which group each rank is in, from 0. `place` is as in
// SynchronizerOptions; `hosts` says of each rank what its host calls itself (host_number). Throws Error{usage} for a
// place that makes no sense.
std::vector<std::vector<int>> place_levels(const SyncPolicy& policy, std::string_view place,
                                           std::span<const std::uint64_t> hosts);
// A number of the machine and its network: ranks with another network namespace talk through links, wherever they run.
// `node`: CommunicatorOptions::node, by which ranks of one machine are told apart.
std::uint64_t host_number(std::string_view node = {});
// Throws the Error{usage} that a Synchronizer would throw in a world of so many ranks on one host.
void check_places(std::string_view sync, std::string_view place, Rank world);

// Throws the Error{usage} that a Synchronizer would throw for a codec that the policy has no use for, or for a wrong
// spec.
void check_compress(const SyncPolicy& policy, std::string_view compress);
// Throws Error{usage} for a rank whose number of samples the policy cannot weigh it by.
void check_samples(const SyncPolicy& policy, std::span<const double> by_rank);
// Of policies that send parameters by parts (SyncPolicy::fragments): how many of the tensors, whose sizes these are,
// each of `count` parts gets: about equal ones, and one tensor at least. Throws Error{usage} where tensors are too few.
std::vector<std::size_t> cut_into_fragments(std::span<const std::size_t> sizes, std::size_t count);

// So far, by this rank. Between: with ranks of other nodes.
struct SyncTraffic {
  std::uint64_t rounds_inside = 0;
  std::uint64_t rounds_between = 0;
  std::uint64_t bytes_inside = 0;
  std::uint64_t bytes_between = 0;
  LossCounts losses = {};  // of all groups
};

class Synchronizer {
 public:
  // All ranks call, with the same options but for `samples`. `comm` outlives this. Throws Error{usage} for a spec, a
  // place or samples that make no sense.
  Synchronizer(Communicator& comm, const SynchronizerOptions& options);
  // Begins to form in `options.groups` what a Synchronizer with these options will ask of it, and returns; see
  // TeamPool::all_are_ready. All ranks call.
  static void prepare(Communicator& comm, const SynchronizerOptions& options);
  ~Synchronizer();
  Synchronizer(const Synchronizer&) = delete;
  Synchronizer& operator=(const Synchronizer&) = delete;

  const SyncPolicy& policy() const;
  // What averages gradients; null if the policy never does. Each rank multiplies its own by gradient_weight() first: 1
  // where all have as many samples.
  Exchange* gradients();
  double gradient_weight() const;
  // This rank has another number of samples from the next step on. All ranks call.
  void set_samples(double samples);
  // The same of every rank, where all know it, and nothing is sent. 0: this rank has none in the next steps, which it
  // takes where an average of gradients reaches it, and leaves out where begin_step() is false. Averages of parameters
  // are weighted by all samples since the last one.
  void set_samples(std::span<const double> by_rank);

  // All replicas agree on these, which are of these tensors; none: one vector.
  void begin(std::span<const float> parameters, const std::vector<Tensor>& tensors = {});
  // Whether the gradients of the step behind `complete` ones are to be averaged; not where nobody has any samples.
  // Throws Error{usage} if by the policy each worker takes steps at a pace of its own.
  bool begin_step(std::uint64_t complete);
  // `parameters` after the optimizer's step number `complete`.
  void end_step(std::uint64_t complete, double learning_rate, std::span<float> parameters);
  // After the last step: brings all replicas together. Whether it had to.
  bool end(std::span<float> parameters);
  // Whether who averages gradients with this rank shares its memory, so that sending them is computing, too.
  bool gradients_stay_in_memory() const;
  // Whether all replicas hold the same parameters now.
  bool agreed() const;
  // Whether they ever hold different ones: by the policy, or over "udp:loss=…,resync=K", where sums of gradients part
  // them and end_step() brings them together every K steps.
  bool parts_replicas() const;
  // Until averages that are under way have come, which replicas take up when they are due: what follows then neither
  // slows them down nor gives them time that steps would not have had.
  void wait();
  // Puts the mean of all replicas in place of these, for a look at it: training goes on from what was there.
  void mean(std::span<float> parameters);

  std::size_t nodes() const;
  const std::vector<int>& node_of_rank() const;
  SyncTraffic traffic() const;
  std::uint64_t plain_buckets() const;
  std::size_t state_bytes() const;
  // For checkpoints: bytes for this rank of this world, without what gradients() keeps. Throws Error{config} for
  // others.
  std::vector<std::byte> save();
  void restore(ConstBytes kept);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ranvier
