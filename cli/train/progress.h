// What a person sees while training runs: a line on stderr that is redrawn, if stderr is a terminal, and one line for
// each evaluation.
#pragma once

#include <chrono>
#include <cstddef>

#include "integrations/trainer/trainer.h"

namespace ranvier::train {

class Progress {
 public:
  // `samples_per_step`: of all workers together.
  explicit Progress(std::size_t samples_per_step);
  ~Progress();  // leaves no half line behind
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void on_step(std::size_t step, std::size_t last_step, double loss);
  void on_evaluation(const trainer::Evaluation&);
  void on_change(const trainer::ChangedPlan&);
  void on_unsaved(const std::string& problem);

 private:
  void wipe();

  const std::size_t samples_per_step_;
  const bool terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point drawn_at_;
  std::chrono::steady_clock::time_point first_at_;
  std::size_t first_step_ = 0;
};

}  // namespace ranvier::train
