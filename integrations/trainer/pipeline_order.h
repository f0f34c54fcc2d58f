// In which order a stage of a pipeline takes the passes of a step.
#pragma once

#include <cstddef>
#include <vector>

namespace ranvier::trainer {

struct StageStep {
  bool is_forward = true;
  std::size_t pass = 0;
  friend bool operator==(const StageStep&, const StageStep&) = default;
};

// One forward, one backward (1F1B): as many forward passes at first as there are stages behind, then a backward one
// after each. A stage then keeps what backward needs of no more passes than there are stages from it on, and all passes
// end before the step does. Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training", ICML 2021
// (arXiv:2006.09503), PipeDream-Flush.
std::vector<StageStep> one_forward_one_backward(std::size_t stage, std::size_t stages, std::size_t passes);

}  // namespace ranvier::trainer
