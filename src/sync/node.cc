// Node-based exchange: gradients are averaged inside a node in every step, parameters between nodes every S steps.
// Moreno-Álvarez, Paoletti, Cavallaro and Haut, "Enhancing Distributed Neural Network Training Through Node-Based
// Communications", IEEE Transactions on Neural Networks and Learning Systems, 2023 (doi 10.1109/TNNLS.2023.3309735),
// where S is once an epoch, or 50 for the largest data set. It is hierarchical local SGD (Lin et al., ICLR 2020) with
// an inner period of 1, and `hierarchy` is the same for any number of levels and any periods.
#include <fmt/format.h>

#include "ranvier/error.h"
#include "ranvier/text.h"
#include "sync/periodic.h"

namespace ranvier::sync {
namespace {

std::uint64_t period_of(std::string_view level, std::string_view text) {
  const auto period = parse_number<std::uint64_t>(text);
  if (!period || *period < 1 || *period > longest_period)
    throw Error(ErrorKind::usage, fmt::format("the period of '{}' in 'hierarchy' is '{}'; give a whole number of steps "
                                              "from 1 to {}",
                                              level, text, longest_period));
  return *period;
}

}  // namespace

PeriodicRule node(const StageSpec& stage, const SyncContext& context) {
  Parameters parameters(stage);
  const std::size_t period = period_or_epoch(parameters, context);
  const std::size_t delay = parameters.count("delay", 0, 0, period - 1);
  parameters.end();
  return {.levels = {{"node", 1}, {std::string(everybody), period}}, .gradient_levels = 1, .delay = delay};
}

PeriodicRule hierarchy(const StageSpec& stage, const SyncContext&) {
  if (!stage.value.empty() || stage.settings.empty())
    throw Error(ErrorKind::usage,
                "'hierarchy' takes a period for each level, from the inside out; write "
                "hierarchy:node=1,rack=8,world=64");
  PeriodicRule rule;
  for (const auto& [name, text] : stage.settings) {
    if (name == "delay") continue;
    const std::uint64_t period = period_of(name, text);
    const std::uint64_t inner = rule.levels.empty() ? 1 : rule.levels.back().period;
    if (period % inner != 0)
      throw Error(ErrorKind::usage, fmt::format("the period of '{}' in 'hierarchy' is {}, which is no multiple of {}, "
                                                "that of '{}' inside it; an outer level averages what inner ones agree "
                                                "on",
                                                name, period, inner, rule.levels.back().name));
    if (!rule.levels.empty() && rule.levels.back().name == everybody)
      throw Error(ErrorKind::usage, fmt::format("'{}' in 'hierarchy' is everybody, so that there is nothing around it; "
                                                "name '{}' before it, since levels stand from the inside out",
                                                everybody, name));
    if (period == 1) ++rule.gradient_levels;
    rule.levels.push_back({std::string(name), period});
  }
  if (rule.levels.empty())
    throw Error(ErrorKind::usage, "'hierarchy' has a delay and no levels; write hierarchy:node=1,world=64,delay=8");
  Parameters parameters(stage);
  rule.delay = parameters.count("delay", 0, 0, rule.levels.back().period - 1);
  return rule;
}

}  // namespace ranvier::sync
