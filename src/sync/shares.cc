#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "ranvier/error.h"
#include "ranvier/sync.h"

namespace ranvier {

std::vector<std::size_t> share_by_speed(std::size_t total, std::span<const double> speeds, std::size_t least) {
  const std::size_t world = speeds.size();
  const double sum = std::accumulate(speeds.begin(), speeds.end(), 0.0);
  if (world == 0 || total < world || !(sum > 0) || !std::isfinite(sum) ||
      std::ranges::any_of(speeds, [](double speed) { return !(speed > 0); }))
    throw Error(ErrorKind::usage, "samples are shared among workers of speeds above 0, at least one sample each");
  least = std::min(least, total / world);
  std::vector<std::size_t> shares;
  for (const double speed : speeds)
    shares.push_back(std::max(least, static_cast<std::size_t>(std::rint(static_cast<double>(total) * speed / sum))));
  // What rounding gave too much or too little is the largest share's: there it matters least.
  for (auto given = std::accumulate(shares.begin(), shares.end(), std::size_t{0}); given != total;) {
    auto& largest = *std::ranges::max_element(shares);
    if (given < total) {
      largest += total - given;
      given = total;
    } else {
      --largest;
      --given;
    }
  }
  return shares;
}

std::vector<std::size_t> share_alike(std::size_t total, std::span<const std::size_t> shares) {
  const auto all = std::accumulate(shares.begin(), shares.end(), std::size_t{0});
  std::vector<std::size_t> parts;
  std::size_t before = 0;
  std::size_t from = 0;
  for (const std::size_t share : shares) {
    before += share;
    const std::size_t to = (total * before + all - 1) / all;
    parts.push_back(to - std::exchange(from, to));
  }
  return parts;
}

}  // namespace ranvier
