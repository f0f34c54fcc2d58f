// What a step consists of: how long computing takes from one gradient to the next, and what the parts of a divided
// model send each other meanwhile, for predictions of other networks. While it records, averaging starts only when
// backward has ended, and its clock stands still while a part waits for another one: times are those of computing
// alone.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "integrations/trainer/model_team.h"
#include "integrations/trainer/recorded_step.h"

namespace ranvier::trainer {

class StepRecorder {
  using Clock = std::chrono::steady_clock;

 public:
  // The first few are slower: memory and caches are new.
  static constexpr std::size_t warm_up = 3;
  static constexpr std::size_t steps = 50;

  // Not to outlive the team, which tells it what is sent.
  StepRecorder(std::size_t tensors, ModelTeam& team);
  ~StepRecorder();
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;

  // No more steps are wanted.
  bool is_done() const { return forward_.size() == warm_up + steps; }
  void begin_forward();
  // The forward pass comes to an operation on a tensor, and is through with one on this tensor: a layer's time is from
  // the end of the one before it.
  void enter();
  void pass(std::size_t tensor);
  void begin_backward(bool is_last_pass);
  void ready(std::size_t tensor);
  void communicate(const PartsCall&);
  // `averaging`: the time from the end of backward until gradients were averages.
  void end_step(std::chrono::nanoseconds step, std::chrono::nanoseconds averaging);

  // Medians over the steps, means over the ranks that hold the same; all call it. Names and bytes are the caller's. Of
  // a pipeline all get the stage that computes longest, which the others wait for.
  RecordedStep finish(std::vector<RecordedTensor> tensors) const;

 private:
  enum class Place : std::uint8_t { elsewhere, forward, backward };

  Clock::time_point now() const { return Clock::now() - team_.waited(); }
  // The last one of an epoch may have fewer samples, and passes.
  bool is_first_step() const { return forward_.empty(); }

  ModelTeam& team_;
  Place place_ = Place::elsewhere;  // of the pass that is measured
  std::size_t passes_ = 0;
  std::size_t passes_of_a_step_ = 1;
  std::vector<PartsCall> pending_;                         // since the last tensor
  std::vector<std::vector<PartsCall>> called_in_forward_;  // by tensor, and behind all of them
  std::vector<std::vector<PartsCall>> called_in_backward_;
  Clock::time_point forward_begun_;
  std::chrono::nanoseconds forward_took_{};
  Clock::time_point backward_begun_;
  std::vector<std::pair<std::size_t, Clock::time_point>> passed_at_;
  Clock::time_point entered_;  // the first layer
  std::vector<std::pair<std::size_t, Clock::time_point>> ready_at_;
  // A number for each step, in ns.
  std::vector<double> forward_;                  // beside the layers
  std::vector<std::vector<double>> forward_of_;  // by tensor
  std::vector<std::vector<double>> ready_;       // by tensor: since backward began
  std::vector<double> other_;
};

}  // namespace ranvier::trainer
