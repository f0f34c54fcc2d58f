#include "probe/pairs.h"

namespace ranvier::probe {

std::vector<Rank> partners(Rank rank, Rank world) {
  // An odd world plays with one more, whose partner rests.
  const Rank seats = world + world % 2;
  std::vector<Rank> result;
  for (Rank round = 0; round + 1 < seats; ++round) {
    // The last seat stays; all others sit in a circle, and who sit at the same distance from `round` meet.
    const Rank circle = seats - 1;
    Rank partner;
    if (rank == seats - 1)
      partner = round;
    else if (rank == round)
      partner = seats - 1;
    else
      partner = (2 * round - rank + 2 * circle) % circle;
    result.push_back(partner < world ? partner : -1);
  }
  return result;
}

}  // namespace ranvier::probe
