// A replica at its own pace whose program loads its samples itself: what `async`, `ssp`, `group` and `ad-psgd` make of
// the steps of any optimizer. (Where samples are to be given out, each once whoever is how fast: ParameterServer,
// AsyncGroup and PeerAverage, of which this is made.)
//
//   OwnPace pace(comm, *policy, parameters, {.samples = 32});
//   for (…) {
//     …                                                           // the optimizer's step
//     pace.step({.rate = learning_rate, .samples = 32}, parameters);
//   }
//   pace.meet(parameters, OwnPace::Then::ends);
//
// What goes to servers is not a gradient but what the optimizer has made of it, (before - after) / rate: workers of the
// stale-synchronous parameter server add updates, too (Ho et al., "More Effective Distributed ML via a Stale
// Synchronous Parallel Parameter Server", NeurIPS 2013). For SGD without momentum that is the gradient; other
// optimizers keep their state on the worker, of its own gradients.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/exchange.h"
#include "ranvier/sync.h"

namespace ranvier {

struct OwnPaceOptions {
  // Of this rank in a step: a push counts by its share of those of all ranks, as these are when they meet: the most
  // that each had in a step since they last did, whose last one may have been what an epoch left, or what set_samples()
  // told behind it.
  double samples = 1;
  std::string compress = "none";
  std::vector<Tensor> tensors = {};  // that the parameters are of, for codecs that choose by them; none: one
  // Of the optimizer, where that is u = m u + g and what it changes is along u: servers then hold what all momenta lead
  // to (GroupMomentum in ranvier/async_group.h), for 4 bytes a parameter. 0: they do not look ahead.
  double momentum = 0;
  // It comes with a u, of steps before these: what its first update is tells how large.
  bool has_velocity = false;
};

class OwnPace {
 public:
  // Throws Error{usage} for a policy whose steps are everybody's, for one with ranks that only serve, since every rank
  // trains here, and for a codec that it cannot go by.
  static void check(const SyncPolicy& policy, std::string_view compress);

  // All ranks call with the same policy, parameters and codec. `comm` outlives this, which alone uses it. Throws what
  // check() throws, and Error{usage} for samples that are no finite number above 0.
  OwnPace(Communicator& comm, const SyncPolicy& policy, std::span<const float> parameters,
          const OwnPaceOptions& options = {});
  ~OwnPace();
  OwnPace(const OwnPace&) = delete;
  OwnPace& operator=(const OwnPace&) = delete;

  struct Step {
    double rate = 1;     // of learning
    double samples = 1;  // that it used, above 0
    double seconds = 0;  // that computing took, where it is known: `group` compares ranks by it
    // What the optimizer's momentum was before, as long as the parameters, in this step's rate: behind steps at a rate
    // of 0, whose updates tell nothing of it.
    std::span<const float> velocity = {};
  };
  // The optimizer has changed `parameters` from what the last call has left in them, or from `began` where a program
  // holds them otherwise: they become what to go on from. Returns when this rank may begin its next step.
  void step(const Step& step, std::span<float> parameters, std::span<const float> began = {});

  // Of this rank in the steps to come: in everybody's sum from the next meet() on.
  void set_samples(double samples);

  enum class Then : bool { goes_on, ends };
  // Every rank calls, behind as many steps as it has taken; nobody waits for who is here but here. All hold the same
  // then: what servers hold, or the mean of all replicas. Throws Error{mismatch} on all ranks where some end here and
  // others go on.
  void meet(std::span<float> parameters, Then then);

  // By rank, from 0: who pushes together. Each alone until `group` knows their speeds, and with every other policy.
  std::vector<int> groups() const;
  // By rank: of all samples, what suits its speed; even shares where those are not measured.
  std::vector<double> shares() const;
  std::uint64_t exchanges() const;   // that this rank had a part in
  std::uint64_t bytes_sent() const;  // by this rank as worker and server
  // Of the codec: what went plain, since something was not finite.
  std::uint64_t plain_messages() const;
  // And what it owes to this rank's updates, a float for each parameter, for checkpoints; empty where nothing is. A run
  // that is resumed by one owes it before its first step.
  std::vector<float> owed() const;
  void owe(std::vector<float> owed);

  class Way;  // by servers, by peers, or alone

 private:
  Communicator& comm_;
  const std::uint64_t sent_before_;  // by comm_
  std::unique_ptr<Way> way_;
};

}  // namespace ranvier
