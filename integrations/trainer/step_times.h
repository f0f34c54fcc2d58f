// How long the steps of a run take, to be reported and compared with what a plan predicted.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/plan_judge.h"

namespace ranvier::trainer {

class StepTimes {
 public:
  void add(std::chrono::nanoseconds step, std::chrono::nanoseconds waiting);
  std::size_t count() const { return steps_.size(); }
  // Of the median step, or the mean one, without those that warm up, where there are others: the mean over the workers;
  // zeros where there was none. All ranks call it.
  StepSeconds median(Communicator&) const;
  StepSeconds mean(Communicator&) const;
  // Of the median, or the mean, of so many last ones, of which there are as many.
  StepSeconds median_of_last(std::size_t count, Communicator&) const;
  StepSeconds mean_of_last(std::size_t count, Communicator&) const;

 private:
  std::vector<StepSeconds> warm() const;
  std::vector<StepSeconds> last(std::size_t count) const;

  std::vector<StepSeconds> steps_;
};

}  // namespace ranvier::trainer
