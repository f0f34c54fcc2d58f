// Where a step's communication takes its time: by dimension of the network and by link.
#pragma once

#include <utility>
#include <vector>

#include "ranvier/simulate.h"

namespace ranvier::plan {

class Shares {
 public:
  // A collective, of whose time computing waits for the part `exposed`, and its codec's time beside it.
  void add(const SimulatedRun&, double exposed, double codec_ns = 0);
  // Into the step's links, dimensions and codec times, with its length as it stands there.
  void fill(StepPrediction&) const;

 private:
  struct Times {
    double all = 0;
    double exposed = 0;
  };
  std::vector<std::pair<const SimulatedRun*, Times>> runs_;  // how often each takes place: steps have many alike
  Times codec_;
};

}  // namespace ranvier::plan
