// Threads that take turns: one of them runs, the others wait for it to wait. Who is next is drawn from the seed, so the
// order in which things happen is a function of the seed alone.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transport/simulated_network.h"

namespace ranvier::simulated {

class Turns {
 public:
  explicit Turns(Network& network);

  // Lets the first rank run; call once all threads are there or on their way.
  void begin();
  // The first call of a rank's thread: returns when it has its turn.
  void enter(Rank self);
  // Gives the turn away until something happens to `self` or `limit` has passed. Throws Error{internal} in a deadlock.
  void wait(Rank self, std::chrono::nanoseconds limit);
  // The last call of a rank's thread.
  void leave(Rank self);
  // Ends a present or the next wait() of `self`. From any thread.
  void interrupt(Rank self) { at(self).interrupted = true; }

 private:
  struct State {
    std::condition_variable turn;
    std::atomic<bool> interrupted = false;
    bool ended = false;
    Time until{};  // it can run from then on, whatever happens
    int idle_waits = 0;
    std::uint64_t moves_seen = 0;
  };

  static constexpr Rank nobody = -1;

  State& at(Rank rank) { return *states_[static_cast<std::size_t>(rank)]; }
  void pass_on(std::unique_lock<std::mutex>&, Rank self);
  Rank choose();
  void look_for_deadlock();
  std::string who_waits();

  Network& network_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<State>> states_;
  Rank running_ = nobody;
  std::string deadlock_;  // what to say; empty while there is none
};

}  // namespace ranvier::simulated
