// DiLoCo: each worker takes H steps of its own optimizer (AdamW), and what they have come on average is the gradient of
// an outer optimizer (Nesterov). Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models",
// arXiv:2311.08105, 2023. With a codec, outer gradients are what it compresses: 4 bits lose nothing that can be seen
// (Douillard et al., "Streaming DiLoCo with overlapping communication", arXiv:2501.18512, 2025).
#include "sync/periodic.h"

namespace ranvier::sync {

OuterStep nesterov(Parameters& parameters) {
  return {.rate = parameters.number("rate", 0.7, 1e-6, 100),
          .momentum = parameters.number("momentum", 0.9, 0, 0.999),
          .nesterov = true};
}

std::unique_ptr<SyncPolicy> diloco(std::string_view spec, const StageSpec& stage, const SyncContext& context) {
  Parameters parameters(stage);
  if (parameters.has("fragments") || parameters.has("delay") || parameters.has("merge"))
    return streaming(spec, stage, context);
  PeriodicRule rule{.levels = {{std::string(everybody), parameters.count("", 30, 1, longest_period)}}};
  rule.outer = nesterov(parameters);
  parameters.end();
  return periodic_policy(spec, std::move(rule), context);
}

}  // namespace ranvier::sync
