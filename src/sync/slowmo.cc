// SlowMo: local SGD whose averages are points of a slower descent with momentum. Wang, Tantia, Ballas and Rabbat,
// "SlowMo: Improving Communication-Efficient Distributed SGD with Slow Momentum", ICLR 2020 (arXiv:1910.00643):
//   u = beta u + (x0 - x) / gamma,   x0 = x0 - alpha gamma u,   gamma the learning rate,
// which the paper has constant within a period; where it is not, its mean there. (The last one, which may be next to
// nothing, would blow up what a rate that rises again then takes in full.)
// The paper finds beta by a grid in 0 … 0.6, larger with more nodes; 48 steps a period are common.
#include "sync/periodic.h"

namespace ranvier::sync {

PeriodicRule slowmo(const StageSpec& stage, const SyncContext&) {
  Parameters parameters(stage);
  PeriodicRule rule{.levels = {{std::string(everybody), parameters.count("", 48, 1, longest_period)}}};
  rule.outer = {.rate = parameters.number("rate", 1, 1e-6, 100),
                .momentum = parameters.number("momentum", 0.2, 0, 0.999),
                .nesterov = false};
  rule.outer_by_rate = true;
  parameters.end();
  return rule;
}

}  // namespace ranvier::sync
