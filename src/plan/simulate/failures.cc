// What failures cost in the long run. With checkpoints: J. W. Young: A first order approximation to the optimum
// checkpoint interval. Communications of the ACM 17 (1974); the interval is right while it is far shorter than the time
// between failures, which is when training makes sense.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ranvier/simulate.h"

namespace ranvier {

StepWithFailures with_failures(double step_ns, Rank world, const FailureModel& model) {
  constexpr double ns_of_second = 1e9;
  StepWithFailures result{.step_ns = step_ns};
  if (!(model.mtbf_hours > 0)) return result;
  const double between_ns = model.mtbf_hours * 3600 * ns_of_second / world;  // failures of any rank
  const double checkpoint_ns = model.checkpoint_s * ns_of_second;
  const double recovery_ns = model.recovery_s * ns_of_second;
  double lost = 0;  // share of the time
  if (checkpoint_ns > 0) {
    const double interval_ns = std::sqrt(2 * checkpoint_ns * between_ns);
    lost = checkpoint_ns / interval_ns + (interval_ns / 2 + recovery_ns) / between_ns;
    result.checkpoint_interval_s = interval_ns / ns_of_second;
  } else {
    lost = (step_ns / 2 + recovery_ns) / between_ns;  // survivors run the step again
  }
  result.lost_share = std::min(lost, 1.0);
  result.step_ns = lost < 1 ? step_ns / (1 - lost) : std::numeric_limits<double>::infinity();
  return result;
}

}  // namespace ranvier
