// A world of processes on this machine, started for a benchmark and asleep but while it is measured.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "bench/lines.h"
#include "bench/peer.h"
#include "bench/world.h"
#include "launch.h"

namespace ranvier::bench {

// How much longer than its limit a coordinator waits for ranks that have something to tell it.
struct Patience {
  // As long as none has come, or answered: ranks that have waited for each other in vain know best why.
  std::chrono::milliseconds to_explain{2'000};
  // For the others, once one has come: they have all met, and nobody is left who could explain anything.
  std::chrono::milliseconds to_follow{200};
};

class ProcessWorld final : public World {
 public:
  // Starts `launch` under a process of its own that watches over it, so that several worlds run at a time. Its ranks
  // find the name of the coordinator's socket in their environment. Call it while this process has one thread.
  ProcessWorld(std::string name, Rank size, cli::Launch launch, std::chrono::milliseconds timeout);
  // Closes the connections, upon which ranks exit; those that do not are killed.
  ~ProcessWorld() override;
  ProcessWorld(const ProcessWorld&) = delete;
  ProcessWorld& operator=(const ProcessWorld&) = delete;

  // Waits for all ranks. Throws Error naming those who did not come. `ranks_tell`: as ranvier's do, they come once they
  // have met, or say why they cannot; those of other libraries come or do not.
  void meet(std::chrono::milliseconds limit, bool ranks_tell, const Patience& = {});

  std::string name() const override { return name_; }
  std::string description() const override { return description_; }
  Rank size() const override { return size_; }
  Outcome run(const Job&) override;

 private:
  // Of an answer: ranks whose own time is over first say whom they were waiting for.
  Lines::Deadline deadline() const { return std::chrono::steady_clock::now() + timeout_ + Patience{}.to_explain; }
  std::vector<std::size_t> absent() const;
  void greet(Lines connection, Lines::Deadline until);
  bool has_ended() { return keeper_->status().has_value(); }
  [[noreturn]] void throw_left(Rank) const;
  Reply answer_of(Rank rank, Lines::Deadline until);

  std::string name_;
  Rank size_;
  std::chrono::milliseconds timeout_;
  Listener listener_;
  std::vector<std::optional<Lines>> ranks_;
  std::string description_;
  std::optional<cli::Keeper> keeper_;  // watches over the world
};

}  // namespace ranvier::bench
