// Local SGD: each worker takes H steps by itself, then parameters are averaged. Stich, "Local SGD Converges Fast and
// Communicates Little", ICLR 2019. Post-local: not before some synchronous steps, in which the loss falls most and
// replicas would part furthest. Lin, Stich, Patel and Jaggi, "Don't Use Large Mini-batches, Use Local SGD", ICLR 2020
// (arXiv:1808.07217).
#include <cmath>

#include "ranvier/error.h"
#include "sync/periodic.h"

namespace ranvier::sync {
namespace {

PeriodicRule every(std::size_t steps) { return {.levels = {{std::string(everybody), steps}}}; }

}  // namespace

PeriodicRule local(const StageSpec& stage, const SyncContext& context) {
  Parameters parameters(stage);
  const std::size_t period = period_or_epoch(parameters, context);
  PeriodicRule rule = every(period);
  rule.adaptation.bound = parameters.number("adapt", 0, 0, 1e6);
  const bool adapts = rule.adaptation.bound > 0, is_bounded = parameters.has("most");
  if (is_bounded && !adapts)
    throw Error(ErrorKind::usage,
                "'local' has a most=, which periods grow up to by adapt=, and no adapt=; add one, or leave most= out");
  if (adapts && !is_bounded && context.steps_per_epoch == 0)
    throw Error(
        ErrorKind::usage,
        "'local' by adapt= lets periods grow up to an epoch, and how many steps that has is not known here; name "
        "the longest period by most=");
  rule.adaptation.most =
      parameters.count("most", std::max<std::size_t>(period, context.steps_per_epoch), period, longest_period);
  rule.delay = parameters.count("delay", 0, 0, period - 1);
  parameters.end();
  if (rule.delay > 0 && adapts)
    throw Error(ErrorKind::usage,
                "'local' by adapt= goes by how far replicas are apart when their average is there, which a delay= puts "
                "off; leave out one of them");
  return rule;
}

PeriodicRule post_local(const StageSpec& stage, const SyncContext& context) {
  Parameters parameters(stage);
  PeriodicRule rule = every(parameters.count("", 16, 1, longest_period));
  const double share = parameters.number("after", 0.5, 0, 1);
  parameters.end();
  if (context.steps == 0)
    throw Error(ErrorKind::usage,
                "'post-local' is synchronous for a share of training, and how many steps that has is "
                "not known here; tell it (steps= of ranvier.attach), or take local:16");
  constexpr double exact = 1 - 1e-12;  // 0.07 of 100 steps are 7, though the product is above that
  rule.synchronous_steps = static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(context.steps) * exact));
  return rule;
}

}  // namespace ranvier::sync
