// Workers at their own pace that average with one peer at a time (ad-psgd), as src/replica/peer_average.cc has them:
// with every step each rank that asks sends its parameters to a random one that is asked and computes meanwhile; its
// step is then from the mean that comes back, for which it waits. Who is asked takes one request at a
// time, receives, and sends the mean, beside what it computes itself. The same random peers as in training with the
// same seed.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "plan/simulate/own_pace.h"
#include "sync/peer_draw.h"

namespace ranvier::plan {
namespace {

class PeerRun final : OwnPace {
 public:
  PeerRun(const SyncPolicy& policy, const Workload& workload, const StepSimulation& how, CollectiveTimes& times,
          const PolicySimulation& simulation)
      : OwnPace(policy, workload, how, times, simulation, times.world(), std::nullopt),
        asked_(index_of(workers_) / 2),
        codec_ns_(bytes_ * how.codec_ns_per_byte) {
    for (Rank rank = 0; rank < workers_; ++rank) ranks_.push_back({.peers = {simulation.seed, rank, workers_}});
    connect(routes(), ranks_.size() / 2, simulation.steps);
  }

  PolicyPrediction predict() {
    for (Rank rank = 0; rank < workers_; ++rank) ask(rank);
    decide();
    run();
    return result();
  }

 private:
  struct Worker {
    sync::PeerDraw peers;
    std::uint64_t given = 0;  // samples of the step under way
    std::uint64_t ended = 0;  // steps
    bool computes = false;    // the gradient of it, or …
    bool awaits = false;      // … the mean that it has asked for is not there yet
    double since = 0;         // when it had the gradient
  };
  // A rank that others ask.
  struct Asked {
    std::deque<std::size_t> queue = {};  // ranks
    bool is_busy = false;
    double since = 0;
    double busy_ns = 0;
  };
  enum What : std::uint8_t { asks, computed, requested, coded, answered };

  static Rank rank_of(std::size_t asked) { return static_cast<Rank>(2 * asked); }

  // By channel: of each that asks to each that is asked its parameters, then the mean.
  std::vector<std::vector<Crossing>> routes() const {
    std::vector<std::vector<Crossing>> result;
    for (Rank rank = 0; rank < workers_; ++rank)
      for (std::size_t peer = 0; sync::PeerDraw::asks(rank, workers_) && peer < asked_.size(); ++peer) {
        result.push_back(route(rank, rank_of(peer)));
        result.push_back(route(rank_of(peer), rank));
      }
    return result;
  }
  std::size_t channel(std::size_t rank, std::size_t peer, std::size_t mean) const {
    return 2 * (rank / 2 * asked_.size() + peer) + mean;
  }

  void happen(const Event& event) override {
    Worker& worker = ranks_[event.who];
    switch (event.what) {
      case asks:
        ask(static_cast<Rank>(event.who));
        return decide();
      case computed:
        worker.computes = false;
        worker.since = now_;
        break;
      case requested:
        asked_[event.whom].queue.push_back(event.who);
        return serve(event.whom);
      case coded:
        return network_->start(static_cast<std::uint32_t>(channel(event.who, event.whom, 1)), bytes_);
      default:
        worker.awaits = false;
        break;
    }
    if (worker.computes || worker.awaits) return;
    waited_ns_ += now_ - worker.since;
    ++worker.ended;
    at(latency_ns(static_cast<Rank>(event.who), 0), asks, event.who);
  }

  // For samples, and says that those of its last step have had their effect.
  void ask(Rank rank) {
    gate_.ended_step(rank, std::exchange(ranks_[index_of(rank)].given, 0));
    gate_.asks(rank, steps_ * all_samples(), batch);
  }

  void decide() {
    for (const auto& [rank, start] : gate_.decide()) {
      if (start.count == 0) continue;  // it has stopped
      Worker& worker = ranks_[index_of(rank)];
      double told = latency_ns(0, rank);
      worker.given = start.count;
      worker.computes = true;
      worker.awaits = sync::PeerDraw::asks(rank, workers_) && !asked_.empty();
      if (worker.awaits) {
        const Rank peer = worker.peers.next();
        told += codec_ns_ / 2;
        at(told + latency_ns(rank, peer), requested, index_of(rank), index_of(peer) / 2);
      }
      const double part = static_cast<double>(start.count) / static_cast<double>(batch);
      at(told + compute_ns(rank, part, start.first), computed, index_of(rank));
    }
  }

  // The next one, unless it is at one.
  void serve(std::size_t peer) {
    Asked& asked = asked_[peer];
    if (asked.is_busy || asked.queue.empty()) return;
    asked.is_busy = true;
    asked.since = now_;
    network_->start(static_cast<std::uint32_t>(channel(asked.queue.front(), peer, 0)), bytes_);
  }

  void arrive(std::size_t of) override {
    const std::size_t peer = of / 2 % asked_.size();
    Asked& asked = asked_[peer];
    const std::size_t rank = asked.queue.front();
    if (of % 2 == 0) return at(codec_ns_, coded, rank, peer);
    asked.queue.pop_front();
    asked.is_busy = false;
    asked.busy_ns += now_ - asked.since;
    ++means_;
    at(codec_ns_ / 2 + latency_ns(rank_of(peer), static_cast<Rank>(rank)), answered, rank);
    serve(peer);
  }

  PolicyPrediction result() {
    PolicyPrediction all = prediction(means_);
    PolicyPrediction::Peers peers{.links = used_links()};
    std::uint64_t most = 0;
    std::uint64_t steps = 0;
    for (const Worker& worker : ranks_) {
      steps += worker.ended;
      most = std::max(most, worker.ended);
    }
    peers.waits_ns = waited_ns_ / static_cast<double>(std::max<std::uint64_t>(steps, 1));
    peers.fastest_share = static_cast<double>(most) / static_cast<double>(std::max<std::uint64_t>(steps, 1));
    for (std::size_t peer = 0; peer < asked_.size(); ++peer)
      if (const double busy = now_ > 0 ? asked_[peer].busy_ns / now_ : 0; busy > peers.busy || peer == 0) {
        peers.busiest = rank_of(peer);
        peers.busy = busy;
      }
    all.peers = std::move(peers);
    return all;
  }

  std::vector<Worker> ranks_;
  std::vector<Asked> asked_;
  const double codec_ns_;  // of a message, half of it to encode, and half to decode
  std::uint64_t means_ = 0;
  double waited_ns_ = 0;  // of all workers
};

}  // namespace

PolicyPrediction simulate_peers(const SyncPolicy& policy, const Workload& workload, const StepSimulation& how,
                                CollectiveTimes& times, const PolicySimulation& simulation) {
  return PeerRun(policy, workload, how, times, simulation).predict();
}

}  // namespace ranvier::plan
