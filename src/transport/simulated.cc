#include "ranvier/simulated.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "ranvier/error.h"
#include "transport/simulated_network.h"
#include "transport/simulated_turns.h"

namespace ranvier {

class SimulatedWorld::Impl {
 public:
  Impl(Rank world, const SimulationOptions& options) : network(world, options), turns(network) {}

  simulated::Network network;
  simulated::Turns turns;
  bool started = false;
};

namespace simulated {
namespace {

class SimulatedTransport final : public Transport {
 public:
  SimulatedTransport(Rank rank, Network& network, Turns& turns, std::shared_ptr<void> owner)
      : rank_(rank), network_(network), turns_(turns), owner_(std::move(owner)) {}
  ~SimulatedTransport() override { cancel(); }

  Rank rank() const override { return rank_; }
  Rank world() const override { return network_.world(); }
  TransportTraits traits() const override {
    return {.name = "simulated",
            .slice_bytes = network_.options().slice_bytes,
            .buffered_bytes = network_.options().slice_bytes,
            .ranks_per_core = 1,
            .polls_before_yield = 0,
            .polls_before_wait = 0};
  }

  std::size_t try_send(Rank to, Lane lane, ConstBytes head, ConstBytes body) override {
    check();
    const std::size_t accepted = network_.try_send(rank_, to, lane, head, body);
    polled(accepted > 0);
    return accepted;
  }

  bool sent(Rank to, Lane lane) override {
    check();
    return network_.sent(rank_, to, lane);
  }

  ConstBytes try_recv(Rank from, Lane lane, Bytes into) override {
    check();
    const ConstBytes view = network_.try_recv(rank_, from, lane, into);
    polled(!view.empty());
    return view;
  }

  void release(Rank from, Lane lane, std::size_t bytes) override {
    if (!cancelled_) network_.release(rank_, from, lane, bytes);
  }

  void wait(std::chrono::nanoseconds limit) override {
    check();
    polls_in_vain_ = 0;
    turns_.wait(rank_, limit);
    check();
  }

  void interrupt() override { turns_.interrupt(rank_); }

  void cancel() override {
    cancelled_ = true;
    network_.forget_callers_memory(rank_);
  }

 private:
  // A body that polls without ever waiting would keep its turn for ever; after so many polls in vain it waits.
  static constexpr int most_polls_in_vain = 10'000;

  void check() {
    if (cancelled_) throw Error(ErrorKind::aborted, "this transport was cancelled; make a new one", rank_);
    network_.check_faults(rank_);
  }

  void polled(bool moved) {
    if (moved)
      polls_in_vain_ = 0;
    else if (++polls_in_vain_ > most_polls_in_vain)
      wait(std::chrono::microseconds(1));
  }

  Rank rank_;
  Network& network_;
  Turns& turns_;
  std::shared_ptr<void> owner_;  // of the two above
  bool cancelled_ = false;
  int polls_in_vain_ = 0;
};

}  // namespace
}  // namespace simulated

SimulatedWorld::SimulatedWorld(Rank world, const SimulationOptions& options) {
  if (world < 1)
    throw Error(ErrorKind::usage, fmt::format("a simulated world of {} ranks is impossible; give at least 1", world));
  if (options.crash && (options.crash->rank < 0 || options.crash->rank >= world))
    throw Error(ErrorKind::usage,
                fmt::format("rank {} cannot crash in a simulated world of {}; choose one from 0 to {}",
                            options.crash->rank, world, world - 1));
  if (options.slice_bytes == 0 || options.buffered_slices == 0)
    throw Error(ErrorKind::usage,
                "a simulated link that buffers nothing delivers nothing; give at least 1 slice of 1 byte");
  if (options.least_delay.count() < 0 || options.most_delay < options.least_delay)
    throw Error(ErrorKind::usage,
                fmt::format("simulated delays from {} ns to {} ns are impossible; give 0 <= least_delay <= most_delay",
                            options.least_delay.count(), options.most_delay.count()));
  impl_ = std::make_shared<Impl>(world, options);
}

SimulatedWorld::~SimulatedWorld() = default;

void SimulatedWorld::run(const std::function<void(std::unique_ptr<Transport>)>& body) {
  if (std::exchange(impl_->started, true))
    throw Error(ErrorKind::usage, "this simulated world has run already; make another one");
  auto& [network, turns, started] = *impl_;
  std::exception_ptr first;  // only whoever has the turn writes it
  std::vector<std::jthread> threads;
  for (Rank rank = 0; rank < network.world(); ++rank)
    threads.emplace_back([&, rank] {
      impl_->turns.enter(rank);
      try {
        body(std::make_unique<simulated::SimulatedTransport>(rank, impl_->network, impl_->turns, impl_));
      } catch (...) {
        if (!first && !impl_->network.has_crashed(rank)) first = std::current_exception();
      }
      impl_->turns.leave(rank);
    });
  turns.begin();
  threads.clear();
  if (first) std::rethrow_exception(first);
}

std::chrono::nanoseconds SimulatedWorld::now() const { return impl_->network.now(); }
std::uint64_t SimulatedWorld::messages() const { return impl_->network.delivered(); }
std::uint64_t SimulatedWorld::trace() const { return impl_->network.trace(); }

}  // namespace ranvier
