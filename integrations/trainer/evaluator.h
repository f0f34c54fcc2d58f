// Looks at a model that is being trained: the mean of all replicas, on the test samples, of which every worker takes
// its share.
#pragma once

#include <ATen/core/Tensor.h>

#include "integrations/trainer/task.h"
#include "integrations/trainer/trainer.h"
#include "ranvier/synchronizer.h"

namespace ranvier::trainer {

class Evaluator {
 public:
  // Both outlive this.
  Evaluator(const Task& task, ModelTeam& team) : task_(task), team_(team) {}

  // Of training, since the last look: the mean over so many samples.
  void add_loss(double loss, std::size_t samples) {
    loss_sum_ += loss * static_cast<double>(samples);
    loss_count_ += static_cast<double>(samples);
  }
  double mean_loss() const { return loss_count_ > 0 ? loss_sum_ / loss_count_ : 0; }

  // All ranks call; `parameters` are this rank's, and are as they were afterwards.
  Evaluation look(std::size_t step, double seconds, Synchronizer& sync, at::Tensor& parameters);

 private:
  const Task& task_;
  ModelTeam& team_;
  double loss_sum_ = 0;
  double loss_count_ = 0;
};

}  // namespace ranvier::trainer
