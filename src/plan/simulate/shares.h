// Where a step's communication takes its time: by dimension of the network and by link.
#pragma once

#include <utility>
#include <vector>

#include "ranvier/simulate.h"

namespace ranvier::plan {

class Shares {
 public:
  // Of what a collective takes by itself, the part for which computing waits: of its time, in which others may go on
  // with it, and of its work.
  struct Exposed {
    double wall = 0;
    double work = 0;
  };
  // `codec_ns` is beside its time.
  void add(const SimulatedRun&, const Exposed&, double codec_ns = 0);
  // Of what others send, whose links are busy with it as their own: the part of its time for which computing waits.
  void add_wait(const SimulatedRun&, double exposed);
  // Into the step's links, dimensions and codec times, with its length as it stands there.
  void fill(StepPrediction&) const;

 private:
  struct Times {
    double all = 0;
    double carried = 0;  // of them, those whose links are busy
    Exposed exposed = {};
  };
  Times& times_of(const SimulatedRun&);

  std::vector<std::pair<const SimulatedRun*, Times>> runs_;  // how often each takes place: steps have many alike
  Times codec_;
};

}  // namespace ranvier::plan
