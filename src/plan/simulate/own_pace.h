// Workers at their own pace: each takes samples, computes, and exchanges messages with whomever its policy has it. What
// simulations of parameter servers and of peers have in common: a virtual clock, the links that messages share, the
// gate that gives out samples as in training (SampleGate), and how long computing takes. Requests for samples have no
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <string_view>
#include <vector>

#include "plan/simulate/fluid.h"
#include "plan/simulate/policy.h"
#include "ranvier/server.h"

namespace ranvier::plan {

inline std::size_t index_of(Rank rank) { return static_cast<std::size_t>(rank); }

class OwnPace {
 public:
  OwnPace(const OwnPace&) = delete;
  OwnPace& operator=(const OwnPace&) = delete;

 protected:
  // Of a replica in a step of everybody's: as many as shares by speed are told apart by.
  static constexpr std::uint64_t batch = 1024;

  struct Event {
    double at;
    std::uint64_t order;  // of equal times the first made comes first
    std::uint8_t what;
    std::size_t who;
    std::size_t whom;
    bool operator>(const Event& other) const { return at != other.at ? at > other.at : order > other.order; }
  };

  // The first `workers` ranks compute. Throws Error{usage} for what they cannot do at their own pace.
  OwnPace(const SyncPolicy&, const Workload&, const StepSimulation&, CollectiveTimes&, const PolicySimulation&,
          Rank workers, std::optional<std::uint64_t> bound);
  ~OwnPace() = default;

  // Before the first event: the ways of messages, by channel, and how many steps there are, where nobody says: of so
  // many messages in each, what takes a second or two.
  void connect(std::vector<std::vector<Crossing>> routes, std::uint64_t messages_a_step, std::uint64_t steps);
  std::vector<Crossing> route(Rank from, Rank to) const;
  double latency_ns(Rank from, Rank to) const;

  // Until nothing is under way.
  void run();
  virtual void happen(const Event&) = 0;
  // The message on that channel has left entirely.
  virtual void arrive(std::size_t channel) = 0;

  void at(double ns, std::uint8_t what, std::size_t who, std::size_t whom = 0) {
    events_.push({now_ + ns, order_++, what, who, whom});
  }
  std::uint64_t all_samples() const { return batch * static_cast<std::uint64_t>(workers_); }
  // Of `part` of a usual step's samples, the first of which is `first`, by one worker.
  double compute_ns(Rank worker, double part, std::uint64_t first);
  // Time, computing and links; `rounds`: of all workers.
  PolicyPrediction prediction(std::uint64_t rounds);
  std::vector<SimulatedLink> used_links() const;

  const Topology& topology_;
  const Rank workers_;
  const double bytes_;  // of all parameters, on the wire
  const double message_ns_;
  SampleGate gate_;
  std::vector<Slowness> slowness_;  // by worker
  std::optional<FluidNetwork> network_;
  std::uint64_t steps_ = 0;
  double now_ = 0;

 private:
  StepPrediction alone_;
  const double passes_ns_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  double computing_ns_ = 0;  // of all workers
};

}  // namespace ranvier::plan
