// Bulk-synchronous: everybody's gradients are averaged in every step, so all replicas stay the same bit for bit.
#include "sync/periodic.h"

namespace ranvier::sync {

PeriodicRule bsp(const StageSpec& stage, const SyncContext&) {
  Parameters(stage).end();
  return {.levels = {{std::string(everybody), 1}}, .gradient_levels = 1};
}

}  // namespace ranvier::sync
