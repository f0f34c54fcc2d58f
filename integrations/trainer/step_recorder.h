// What a step consists of: how long computing takes from one gradient to the next, for predictions of other networks.
// While it records, averaging starts only when backward has ended, so that the times are those of computing alone.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "ranvier/communicator.h"

namespace ranvier::trainer {

// One tensor of parameters, and when its gradient is there.
struct RecordedTensor {
  std::string name = {};
  double bytes = 0;
  double forward_ns = 0;  // of the forward pass, until it was through with this one's layer
  double compute_ns = 0;  // since the gradient before it, or since backward began
};

struct RecordedStep {
  std::vector<RecordedTensor> tensors = {};  // in the order in which their gradients become ready
  double forward_ns = 0;                     // beside the layers': gathering samples, the loss
  double other_ns = 0;                       // the rest of backward, the optimizer
  std::size_t steps = 0;
};

class StepRecorder {
  using Clock = std::chrono::steady_clock;

 public:
  // The first few are slower: memory and caches are new.
  static constexpr std::size_t warm_up = 3;
  static constexpr std::size_t steps = 50;

  explicit StepRecorder(std::size_t tensors) : forward_of_(tensors), ready_(tensors) {}

  // No more steps are wanted.
  bool is_done() const { return forward_.size() == warm_up + steps; }
  void begin_forward();
  // The forward pass comes to an operation on a tensor, and is through with one on this tensor: a layer's time is from
  // the end of the one before it.
  void enter();
  void pass(std::size_t tensor);
  void begin_backward() { backward_begun_ = Clock::now(); }
  void ready(std::size_t tensor) { ready_at_.emplace_back(tensor, Clock::now()); }
  // `averaging`: the time from the end of backward until gradients were averages.
  void end_step(std::chrono::nanoseconds step, std::chrono::nanoseconds averaging);

  // Medians over the steps, means over the ranks; all of them call it. Names and bytes are the caller's.
  RecordedStep finish(Communicator&, std::vector<RecordedTensor> tensors) const;

 private:
  Clock::time_point forward_begun_;
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
