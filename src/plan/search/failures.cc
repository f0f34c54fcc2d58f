#include <fmt/format.h>

#include <bit>
#include <vector>

#include "ranvier/design_search.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

// How many times longer a dimension takes with a cable or NIC less.
double slower(const NetworkShape& shape, std::size_t dimension, int nics) {
  const auto& [block, size, tier] = shape.dimensions[dimension];
  const auto refuse = [&](const char* why) {
    throw Error(ErrorKind::usage,
                fmt::format("dimension {} of {} does not survive a failure: {}", dimension, to_string(shape), why));
  };
  switch (block) {
    case Block::ring:
      if (size < 3) refuse("two NPUs have one cable; make it a switch");
      return 2;
    case Block::fully_connected:
      if (size < 3) refuse("two NPUs have one cable; make it a switch");
      // The bytes of the missing link go over each of n-2 others, twice: 1 + 1/(n-2) on each.
      return static_cast<double>(size - 1) / (size - 2);
    case Block::switched:
      if (nics < 2) refuse("an NPU has one NIC on it; say how many more with --survive-failure NICS");
      return static_cast<double>(nics) / (nics - 1);
  }
  return 1;
}

}  // namespace

StepTime with_any_failure(const StepTime& step, const NetworkShape& shape, int nics) {
  StepTime result{.dimensions = step.dimensions, .terms = {}, .cases = {}};
  const std::size_t dimensions = shape.dimensions.size();
  std::uint32_t used = 0;
  for (const TrafficTerm& term : step.terms)
    for (const Load& load : term.loads) {
      if (!(load.bytes > 0)) continue;
      used |= load.dimensions;
      if (!std::has_single_bit(load.dimensions))
        throw Error(ErrorKind::usage,
                    "mixed chunk orders load several dimensions together, and a failure slows one of them: leave out "
                    "--survive-failure, or the orders");
    }
  for (std::size_t failed = 0; failed < dimensions; ++failed) {
    if ((used >> failed & 1) == 0) continue;
    const double factor = slower(shape, failed, nics);
    const std::size_t first = result.terms.size();
    for (TrafficTerm term : step.terms) {
      for (Load& load : term.loads)
        if ((load.dimensions >> failed & 1) != 0) load.bytes *= factor;
      result.terms.push_back(std::move(term));
    }
    for (const StepCase& one : step.cases) {
      StepCase with{.constant_ns = one.constant_ns, .weights = std::vector<double>(first, 0)};
      with.weights.insert(with.weights.end(), one.weights.begin(), one.weights.end());
      result.cases.push_back(std::move(with));
    }
  }
  if (result.cases.empty()) return step;
  for (StepCase& one : result.cases) one.weights.resize(result.terms.size(), 0);
  return result;
}

}  // namespace ranvier
