#include "topology/world.h"

#include <fmt/format.h>

#include "ranvier/error.h"

namespace ranvier::topology {

void check_world(std::string_view name, std::int64_t world, std::int64_t most) {
  if (world < 1 || world > most)
    throw Error(ErrorKind::usage,
                fmt::format("topology {} was asked for {} ranks; it can have 1 to {}", name, world, most));
}

}  // namespace ranvier::topology
