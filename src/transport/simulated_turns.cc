#include "transport/simulated_turns.h"

#include <fmt/format.h>

#include <algorithm>

#include "ranvier/error.h"

namespace ranvier::simulated {
namespace {

enum TurnEvent : std::uint64_t { takes_turn = 101 };

// Engines wait with a limit and look again, so that no single wait tells a deadlock. This many in a row, of every rank,
// with nothing under way do: a rank that could move would have moved at the first.
constexpr int idle_waits_of_a_deadlock = 1000;

constexpr Time for_ever = Time::max();

}  // namespace

Turns::Turns(Network& network) : network_(network) {
  for (Rank rank = 0; rank < network.world(); ++rank) states_.push_back(std::make_unique<State>());
}

void Turns::begin() {
  std::unique_lock lock(mutex_);
  pass_on(lock, nobody);
}

void Turns::enter(Rank self) {
  std::unique_lock lock(mutex_);
  at(self).turn.wait(lock, [&] { return running_ == self; });
}

void Turns::wait(Rank self, std::chrono::nanoseconds limit) {
  std::unique_lock lock(mutex_);
  State& state = at(self);
  const Time now = network_.now();
  state.until = limit < for_ever - now ? now + std::max(limit, Time::zero()) : for_ever;
  if (state.moves_seen != network_.moves()) state.idle_waits = 0;
  state.moves_seen = network_.moves();
  ++state.idle_waits;
  look_for_deadlock();
  if (!state.interrupted.exchange(false)) pass_on(lock, self);
  state.interrupted = false;
  network_.take_wake(self);
  if (!deadlock_.empty()) throw Error(ErrorKind::internal, deadlock_);
}

void Turns::leave(Rank self) {
  std::unique_lock lock(mutex_);
  at(self).ended = true;
  network_.leave(self);
  pass_on(lock, nobody);
}

// Returns when the turn has come back to `self`; at once for nobody.
void Turns::pass_on(std::unique_lock<std::mutex>& lock, Rank self) {
  running_ = choose();
  if (running_ == self || running_ == nobody) return;
  at(running_).turn.notify_one();
  if (self != nobody) at(self).turn.wait(lock, [&] { return running_ == self; });
}

Rank Turns::choose() {
  for (;;) {
    std::vector<Rank> can_run;
    bool all_ended = true;
    std::optional<Time> next = network_.next_event();
    for (Rank rank = 0; rank < network_.world(); ++rank) {
      State& state = at(rank);
      if (state.ended) continue;
      all_ended = false;
      if (state.until <= network_.now() || network_.woken(rank) || state.interrupted || !deadlock_.empty())
        can_run.push_back(rank);
      else if (state.until != for_ever)
        next = std::min(state.until, next.value_or(state.until));
    }
    if (all_ended) return nobody;
    if (!can_run.empty()) {
      const Rank chosen = can_run[network_.random().below(can_run.size())];
      network_.note(takes_turn, static_cast<std::uint64_t>(chosen), can_run.size());
      return chosen;
    }
    if (next)
      network_.advance_to(*next);
    else
      deadlock_ = who_waits();
  }
}

void Turns::look_for_deadlock() {
  if (!deadlock_.empty() || network_.next_event()) return;
  for (Rank rank = 0; rank < network_.world(); ++rank) {
    const State& state = at(rank);
    if (state.ended) continue;
    if (state.idle_waits < idle_waits_of_a_deadlock || state.moves_seen != network_.moves()) return;
  }
  deadlock_ = who_waits();
}

std::string Turns::who_waits() {
  std::string waiting;
  std::string ended;
  for (Rank rank = 0; rank < network_.world(); ++rank) {
    std::string& list = at(rank).ended ? ended : waiting;
    list += fmt::format("{}{}", list.empty() ? "" : ", ", rank);
  }
  const std::string unread = network_.unread();
  return fmt::format("deadlock after {:.3f} ms of virtual time: nothing is under way, yet these ranks wait: {}{}{}",
                     std::chrono::duration<double, std::milli>(network_.now()).count(), waiting,
                     ended.empty() ? "" : fmt::format("; and these have ended: {}", ended),
                     unread.empty() ? "" : fmt::format("; and this is not read: {}", unread));
}

}  // namespace ranvier::simulated
