#include "plan/simulate/fluid.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace ranvier::plan {
namespace {

constexpr double tiny = 1e-9;  // relative: what is this near is the same

}  // namespace

FluidNetwork::FluidNetwork(std::vector<double> capacities, std::vector<std::vector<Crossing>> routes)
    : capacities_(std::move(capacities)),
      routes_(std::move(routes)),
      carried_(capacities_.size()),
      left_(routes_.size()),
      rate_(routes_.size()),
      room_(capacities_.size()),
      demand_(capacities_.size()) {}

void FluidNetwork::start(std::uint32_t channel, double bytes) {
  left_[channel] = bytes;
  active_.push_back(channel);
  shared_ = false;
}

double FluidNetwork::until_next() {
  share();
  double least = std::numeric_limits<double>::infinity();
  for (const auto channel : active_) least = std::min(least, left_[channel] / rate_[channel]);
  return least;
}

void FluidNetwork::advance(double ns, std::vector<std::uint32_t>& done) {
  share();
  const std::size_t before = done.size();
  for (const auto channel : active_) {
    // What would leave within a millionth of this time leaves now: sums of many rounded times differ by less.
    const bool leaves = left_[channel] <= rate_[channel] * ns * (1 + tiny) + tiny;
    const double bytes = leaves ? left_[channel] : rate_[channel] * ns;
    left_[channel] -= bytes;
    for (const Crossing& crossing : routes_[channel]) carried_[crossing.link] += bytes * crossing.times;
    if (leaves) done.push_back(channel);
  }
  if (done.size() == before) return;
  std::erase_if(active_, [&](std::uint32_t channel) { return left_[channel] == 0; });
  shared_ = false;
}

// Water filling: the link with least room for each of its flows decides their rate; they leave, and so on.
void FluidNetwork::share() {
  if (std::exchange(shared_, true)) return;
  used_.clear();
  for (const auto channel : active_) {
    rate_[channel] = -1;
    for (const Crossing& crossing : routes_[channel]) {
      if (demand_[crossing.link] == 0) {
        used_.push_back(crossing.link);
        room_[crossing.link] = capacities_[crossing.link];
      }
      demand_[crossing.link] += crossing.times;
    }
  }
  for (std::size_t settled = 0; settled < active_.size();) {
    double level = std::numeric_limits<double>::infinity();
    for (const auto link : used_)
      if (demand_[link] > tiny) level = std::min(level, room_[link] / demand_[link]);
    // First find all that this level settles, then take what they use: links of one level settle together.
    for (const auto channel : active_) {
      if (rate_[channel] >= 0) continue;
      const auto& route = routes_[channel];
      if (std::any_of(route.begin(), route.end(), [&](const Crossing& crossing) {
            return room_[crossing.link] <= level * demand_[crossing.link] * (1 + tiny);
          }))
        rate_[channel] = -2;
    }
    for (const auto channel : active_) {
      if (rate_[channel] != -2) continue;
      rate_[channel] = level;
      ++settled;
      for (const Crossing& crossing : routes_[channel]) {
        room_[crossing.link] = std::max(0.0, room_[crossing.link] - level * crossing.times);
        demand_[crossing.link] -= crossing.times;
      }
    }
  }
  for (const auto link : used_) demand_[link] = 0;
}

}  // namespace ranvier::plan
