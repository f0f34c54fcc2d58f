// What a run has cost: its time, what of it was waiting, and its exchanges.
#pragma once

#include <chrono>

#include "integrations/trainer/trainer.h"
#include "ranvier/synchronizer.h"

namespace ranvier::trainer {

class Account {
  using Clock = std::chrono::steady_clock;

 public:
  struct Mark {
    Clock::time_point at;
    SyncTraffic traffic;
  };
  static Mark begin(const Synchronizer& sync) { return {Clock::now(), sync.traffic()}; }
  // All since `mark`, by the same synchronizer, counts. Returns how long that was.
  std::chrono::nanoseconds end(const Mark& mark, const Synchronizer& sync);
  // The same, but for the time.
  void add_traffic(const Mark& mark, const Synchronizer& sync);
  // The rest of it. Returns how long that was.
  std::chrono::nanoseconds add_time(const Mark& mark) {
    const auto took = Clock::now() - mark.at;
    spent_ += took;
    return took;
  }
  // Of what was or will be counted, for others.
  void add_waiting(std::chrono::nanoseconds time) { waited_ += time; }
  // That the synchronizer does not know of.
  void add_rounds(std::uint64_t rounds, bool between) { (between ? rounds_.second : rounds_.first) += rounds; }

  double seconds() const { return std::chrono::duration<double>(spent_).count(); }
  // To workers that hold other parts of the same model.
  void add_model_bytes(std::uint64_t bytes) { model_bytes_ += static_cast<double>(bytes); }
  // All ranks call: bytes are means over them, waiting over those that result.groups does not say to only serve, losses
  // sums.
  void conclude(TrainResult& result, Communicator& comm) const;

 private:
  std::chrono::nanoseconds spent_{};
  std::chrono::nanoseconds waited_{};
  std::pair<std::uint64_t, std::uint64_t> rounds_{0, 0};  // inside nodes, and between them, as …
  std::pair<double, double> bytes_{0, 0};                 // … bytes
  LossCounts losses_;
  double model_bytes_ = 0;
};

}  // namespace ranvier::trainer
