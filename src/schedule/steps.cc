#include "schedule/steps.h"

#include <fmt/format.h>

#include <algorithm>

#include "ranvier/error.h"

namespace ranvier::steps {

void check(std::string_view algorithm, Collective collective, std::initializer_list<Collective> built, Rank world,
           Rank root) {
  if (std::find(built.begin(), built.end(), collective) == built.end()) {
    std::vector<std::string_view> names;
    for (const Collective each : built) names.push_back(name_of(each));
    throw Error(ErrorKind::usage, fmt::format("algorithm '{}' does not build {}; it builds {}", algorithm,
                                              name_of(collective), fmt::join(names, ", ")));
  }
  if (world < 1)
    throw Error(
        ErrorKind::usage,
        fmt::format("algorithm '{}' was asked for a world of {} ranks; a world has at least 1", algorithm, world));
  if (root < 0 || root >= world)
    throw Error(ErrorKind::usage,
                fmt::format("algorithm '{}' was asked for root {}; the ranks of this world are 0 to {}", algorithm,
                            root, world - 1));
}

std::vector<Step> alone() { return {copy(input(0), output(0), 0)}; }

}  // namespace ranvier::steps
