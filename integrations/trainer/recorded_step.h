// What a training step was seen to consist of, which becomes a workload (ranvier/workload_file.h).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ranvier/communicator.h"

namespace ranvier::trainer {

// What the parts of a divided model do together, each with so many bytes.
struct PartsCall {
  Collective collective = Collective::all_reduce;
  double bytes = 0;
};

// One tensor of parameters, and when its gradient is there.
struct RecordedTensor {
  std::string name = {};
  double bytes = 0;
  double forward_ns = 0;                    // of the forward pass, until it was through with this one's layer
  double compute_ns = 0;                    // since the gradient before it, or since backward began
  std::vector<PartsCall> in_forward = {};   // before this one's layer, …
  std::vector<PartsCall> in_backward = {};  // … and before its gradient
};

// Of all passes of a step, which are alike: the last one is measured.
struct RecordedStep {
  std::vector<RecordedTensor> tensors = {};  // in the order in which their gradients become ready
  double forward_ns = 0;                     // beside the layers': gathering samples, the loss
  std::vector<PartsCall> in_forward = {};    // behind the layers
  double other_ns = 0;                       // the rest of backward, the optimizer
  std::size_t steps = 0;
  std::size_t passes = 1;
  Rank stage = 0;     // of a pipeline
  double others = 0;  // what all other stages compute, as a multiple of what this one does
};

// Of what each stage of a pipeline has seen, the one that computes longest, which the others wait for: all members get
// it.
RecordedStep longest_stage(RecordedStep own, Communicator& members);

}  // namespace ranvier::trainer
