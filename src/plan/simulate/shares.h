// Where a step's communication takes its time: by dimension of the network and by link.
#pragma once

#include <utility>
#include <vector>

#include "plan/simulate/common_links.h"
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
  // `took_ns`: less than by itself where links had saved up a burst. `codec_ns` is beside its time.
  void add(const SimulatedRun&, const Exposed&, double took_ns, double codec_ns = 0);
  // Of what others send, whose links are busy with it as their own: the part of its time for which computing waits.
  void add_wait(const SimulatedRun&, double exposed);
  std::vector<const SimulatedRun*> runs() const;
  // Into the step's links, which are those of runs(), dimensions and codec times, with its length as it stands there.
  void fill(StepPrediction&, const std::vector<CommonLinks::Link>& links) const;

 private:
  struct Times {
    double took = 0;     // of all of them, as parts of its time by itself
    double carried = 0;  // how many have links that are busy with it
    Exposed exposed = {};
  };
  Times& times_of(const SimulatedRun&);

  std::vector<std::pair<const SimulatedRun*, Times>> runs_;  // steps have many alike
  double codec_ns_ = 0;
  double exposed_codec_ns_ = 0;
};

}  // namespace ranvier::plan
