#include "plan/simulate/fluid.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace ranvier::plan {
namespace {

constexpr double tiny = 1e-9;  // relative: what is this near is the same
// How many times faster than its rate a link passes what it has saved: at once, next to all else.
constexpr double at_once = 64;
// The part of a bucket that has to be there before it is used again: less would be many events of no length.
constexpr double least_part = 1.0 / 16;

}  // namespace

FluidNetwork::FluidNetwork(std::vector<FluidLink> links, std::vector<std::vector<Crossing>> routes,
                           std::vector<std::uint32_t> senders)
    : links_(std::move(links)),
      capacity_(links_.size()),
      flow_(links_.size()),
      routes_(std::move(routes)),
      senders_(std::move(senders)),
      carried_(links_.size()),
      left_(routes_.size()),
      rate_(routes_.size()),
      weight_(routes_.size(), 1),
      room_(links_.size()),
      demand_(links_.size()),
      on_link_(links_.size()),
      flows_(links_.size()),
      link_reached_(links_.size()),
      channel_reached_(routes_.size()),
      turn_(senders_.empty() ? 0 : *std::ranges::max_element(senders_) + 1) {
  for (std::uint32_t link = 0; link < links_.size(); ++link) {
    capacity_[link] = links_[link].bytes_per_ns;
    if (links_[link].burst_bytes <= 0) continue;
    buckets_.push_back({.link = link, .bytes = links_[link].burst_bytes, .open = true});
    capacity_[link] *= at_once;
  }
}

void FluidNetwork::start(std::uint32_t channel, double bytes) {
  left_[channel] = bytes;
  active_.push_back(channel);
  for (const Crossing& crossing : routes_[channel]) {
    carried_[crossing.link] += bytes * crossing.times;
    flows_[crossing.link].push_back(channel);
    changed_.push_back(crossing.link);
  }
}

void FluidNetwork::weigh(std::uint32_t channel, double weight) {
  if (std::exchange(weight_[channel], weight) == weight || left_[channel] == 0) return;
  for (const Crossing& crossing : routes_[channel]) changed_.push_back(crossing.link);
}

void FluidNetwork::leave(std::uint32_t channel) {
  for (const Crossing& crossing : routes_[channel]) {
    auto& flows = flows_[crossing.link];
    *std::ranges::find(flows, channel) = flows.back();
    flows.pop_back();
    changed_.push_back(crossing.link);
  }
}

void FluidNetwork::stop(std::uint32_t channel) {
  if (std::erase(active_, channel) == 0) return;
  for (const Crossing& crossing : routes_[channel]) carried_[crossing.link] -= left_[channel] * crossing.times;
  left_[channel] = 0;
  leave(channel);
}

double FluidNetwork::until_next() {
  share();
  double least = std::numeric_limits<double>::infinity();
  for (const auto channel : active_) least = std::min(least, left_[channel] / rate_[channel]);
  for (const Bucket& bucket : buckets_) {
    const double beyond = flow_[bucket.link] - links_[bucket.link].bytes_per_ns;
    if (bucket.open && beyond > tiny * flow_[bucket.link]) least = std::min(least, bucket.bytes / beyond);
  }
  return least;
}

// What flows beyond a link's rate comes out of its bucket, what flows below goes into it.
void FluidNetwork::fill(double ns) {
  for (Bucket& bucket : buckets_) {
    const FluidLink& link = links_[bucket.link];
    const double change = (link.bytes_per_ns - flow_[bucket.link]) * ns;
    bucket.bytes = std::clamp(bucket.bytes + change, 0.0, link.burst_bytes);
    const bool open = bucket.bytes > (bucket.open ? tiny : least_part) * link.burst_bytes;
    if (open == bucket.open) continue;
    bucket.open = open;
    capacity_[bucket.link] = link.bytes_per_ns * (open ? at_once : 1);
    changed_.push_back(bucket.link);
  }
}

void FluidNetwork::advance(double ns, std::vector<std::uint32_t>& done) {
  share();
  fill(ns);
  const std::size_t before = done.size();
  for (const auto channel : active_) {
    // What would leave within a millionth of this time leaves now: sums of many rounded times differ by less.
    const bool leaves = left_[channel] <= rate_[channel] * ns * (1 + tiny) + tiny;
    left_[channel] = leaves ? 0 : left_[channel] - rate_[channel] * ns;
    if (leaves) done.push_back(channel);
  }
  if (done.size() == before) return;
  std::erase_if(active_, [&](std::uint32_t channel) { return left_[channel] == 0; });
  for (std::size_t i = before; i < done.size(); ++i) leave(done[i]);
}

// Those whose rate may be another one now: whoever shares a link with what has come, gone or changed, with them, and so
// on. Max-min fair rates of others are what they were.
void FluidNetwork::reach() {
  ++reach_;
  reached_.clear();
  while (!changed_.empty()) {
    const auto link = changed_.back();
    changed_.pop_back();
    if (std::exchange(link_reached_[link], reach_) == reach_) continue;
    for (const auto channel : flows_[link]) {
      if (std::exchange(channel_reached_[channel], reach_) == reach_) continue;
      reached_.push_back(channel);
      for (const Crossing& crossing : routes_[channel]) changed_.push_back(crossing.link);
    }
  }
}

void FluidNetwork::share() {
  if (changed_.empty()) return;
  if (senders_.empty()) {
    reach();
    make_room(reached_);
    share_among(reached_);
  } else {
    changed_.clear();
    make_room(active_);
    std::ranges::fill(turn_, 0);
    for (auto& channels : turns_) channels.clear();
    // They stand in the order in which they began.
    for (const auto channel : active_) {
      const std::size_t turn = turn_[senders_[channel]]++;
      if (turns_.size() <= turn) turns_.emplace_back();
      turns_[turn].push_back(channel);
    }
    for (const auto& channels : turns_) share_among(channels);
  }
  if (buckets_.empty()) return;
  std::fill(flow_.begin(), flow_.end(), 0);
  for (const auto channel : active_)
    for (const Crossing& crossing : routes_[channel]) flow_[crossing.link] += rate_[channel] * crossing.times;
}

void FluidNetwork::make_room(const std::vector<std::uint32_t>& channels) {
  for (const auto channel : channels)
    for (const Crossing& crossing : routes_[channel]) room_[crossing.link] = capacity_[crossing.link];
}

// Water filling of the room that is left: the link with least of it for the weights of its flows decides their rates;
// they leave, and so on. A link that others leave has more for those that stay, never less: what a heap knows of it is
// at most what it has, and is looked at again when it comes up.
void FluidNetwork::share_among(const std::vector<std::uint32_t>& channels) {
  used_.clear();
  for (const auto channel : channels) {
    rate_[channel] = -1;
    shared_crossings_ += routes_[channel].size();
    for (const Crossing& crossing : routes_[channel]) {
      if (demand_[crossing.link] == 0) used_.push_back(crossing.link);
      demand_[crossing.link] += crossing.times * weight_[channel];
      on_link_[crossing.link].push_back(channel);
    }
  }
  const auto later = [](const Level& a, const Level& b) { return a.rate > b.rate; };
  open_.clear();
  for (const auto link : used_) open_.push_back({room_[link] / demand_[link], link});
  std::make_heap(open_.begin(), open_.end(), later);
  const auto take = [&] {
    std::pop_heap(open_.begin(), open_.end(), later);
    const auto link = open_.back().link;
    open_.pop_back();
    return link;
  };
  for (std::size_t settled = 0; settled < channels.size(); settled += settling_.size()) {
    // First find all that this level settles, then take what they use: links of one level settle together.
    settling_.clear();
    double level = std::numeric_limits<double>::infinity();
    while (!open_.empty() && open_.front().rate <= level * (1 + tiny)) {
      const auto link = take();
      if (demand_[link] <= tiny) continue;
      const double rate = room_[link] / demand_[link];
      const bool is_least = open_.empty() || rate <= open_.front().rate;
      if (rate > level * (1 + tiny) || (std::isinf(level) && !is_least)) {
        open_.push_back({rate, link});
        std::push_heap(open_.begin(), open_.end(), later);
        continue;
      }
      level = std::min(level, rate);
      for (const auto channel : on_link_[link])
        if (rate_[channel] == -1) {
          rate_[channel] = -2;
          settling_.push_back(channel);
        }
    }
    for (const auto channel : settling_) {
      rate_[channel] = level * weight_[channel];
      for (const Crossing& crossing : routes_[channel]) {
        room_[crossing.link] = std::max(0.0, room_[crossing.link] - rate_[channel] * crossing.times);
        demand_[crossing.link] -= crossing.times * weight_[channel];
      }
    }
  }
  for (const auto link : used_) {
    demand_[link] = 0;
    on_link_[link].clear();
  }
}

}  // namespace ranvier::plan
