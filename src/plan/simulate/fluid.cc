#include "plan/simulate/fluid.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

namespace ranvier::plan {
namespace {

constexpr double tiny = 1e-9;            // relative: what is this near is the same
constexpr double time_rounding = 1e-13;  // of times since the beginning
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
      begun_(routes_.size()),
      since_(routes_.size()),
      place_(routes_.size()),
      version_(routes_.size()),
      bottleneck_(routes_.size()),
      rate_(routes_.size()),
      weight_(routes_.size(), 1),
      shared_(routes_.size()),
      room_(links_.size()),
      demand_(links_.size()),
      users_(links_.size()),
      on_link_(links_.size()),
      flows_(links_.size()),
      link_reached_(links_.size()),
      channel_reached_(routes_.size()),
      queues_(senders_.empty() ? 0 : *std::ranges::max_element(senders_) + 1) {
  for (std::uint32_t link = 0; link < links_.size(); ++link) {
    capacity_[link] = links_[link].bytes_per_ns;
    if (links_[link].burst_bytes <= 0) continue;
    buckets_.push_back({.link = link, .bytes = links_[link].burst_bytes, .open = true});
    capacity_[link] *= at_once;
  }
}

void FluidNetwork::start(std::uint32_t channel, double bytes) {
  left_[channel] = bytes;
  rate_[channel] = 0;
  since_[channel] = now_;
  begun_[channel] = ++starts_;
  if (bytes <= 0) end_at(channel, now_);
  place_[channel] = active_.size();
  active_.push_back(channel);
  if (!senders_.empty()) queues_[senders_[channel]].push_back(channel);
  for (const Crossing& crossing : routes_[channel]) {
    carried_[crossing.link] += bytes * crossing.times;
    flows_[crossing.link].push_back({channel, crossing.times});
    changed_.push_back(crossing.link);
  }
}

void FluidNetwork::weigh(std::uint32_t channel, double weight) {
  if (std::exchange(weight_[channel], weight) == weight || !is_active(channel)) return;
  for (const Crossing& crossing : routes_[channel]) changed_.push_back(crossing.link);
}

bool FluidNetwork::is_active(std::uint32_t channel) const {
  return place_[channel] < active_.size() && active_[place_[channel]] == channel;
}

// Of a link that thousands leave at once, as all pairs do, its flows are gone through once.
void FluidNetwork::leave(std::span<const std::uint32_t> channels) {
  left_links_.clear();
  for (const auto channel : channels) {
    ++version_[channel];
    place_[active_.back()] = place_[channel];
    active_[place_[channel]] = active_.back();
    active_.pop_back();
    if (!senders_.empty()) std::erase(queues_[senders_[channel]], channel);
    for (const Crossing& crossing : routes_[channel]) left_links_.push_back(crossing.link);
  }
  std::ranges::sort(left_links_);
  left_links_.erase(std::unique(left_links_.begin(), left_links_.end()), left_links_.end());
  for (const auto link : left_links_) {
    std::erase_if(flows_[link], [this](const Flow& flow) { return !is_active(flow.channel); });
    changed_.push_back(link);
  }
}

void FluidNetwork::stop(std::uint32_t channel) {
  if (!is_active(channel)) return;
  const double left = std::max(0.0, left_[channel] - rate_[channel] * (now_ - since_[channel]));
  for (const Crossing& crossing : routes_[channel]) carried_[crossing.link] -= left * crossing.times;
  leave({&channel, 1});
}

double FluidNetwork::until_next() {
  share();
  while (!ends_.empty() && ends_.front().version != version_[ends_.front().channel]) drop_end();
  double least = std::numeric_limits<double>::infinity();
  if (!ends_.empty()) least = std::max(0.0, ends_.front().at - now_);
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
  now_ += ns;
  const std::size_t before = done.size();
  // What would leave within a millionth of this time leaves now: sums of many rounded times differ by less.
  const double now = now_ + tiny * ns + time_rounding * now_;
  for (; !ends_.empty(); drop_end()) {
    const End& first = ends_.front();
    if (first.version != version_[first.channel]) continue;
    const double rate = rate_[first.channel];
    if (first.at > now + (rate > 0 ? tiny / rate : 0)) break;
    done.push_back(first.channel);
  }
  if (done.size() == before) return;
  std::sort(done.begin() + static_cast<std::ptrdiff_t>(before), done.end(),
            [this](std::uint32_t a, std::uint32_t b) { return begun_[a] < begun_[b]; });
  leave(std::span(done).subspan(before));
}

void FluidNetwork::drop_end() {
  std::pop_heap(ends_.begin(), ends_.end(), std::greater<>());
  ends_.pop_back();
}

void FluidNetwork::end_at(std::uint32_t channel, double at) {
  ends_.push_back({at, channel, ++version_[channel]});
  std::push_heap(ends_.begin(), ends_.end(), std::greater<>());
}

void FluidNetwork::set_rate(std::uint32_t channel, double rate) {
  if (rate == rate_[channel]) return;
  left_[channel] = std::max(0.0, left_[channel] - rate_[channel] * (now_ - since_[channel]));
  since_[channel] = now_;
  rate_[channel] = rate;
  if (left_[channel] > 0 && rate <= 0)
    ++version_[channel];  // it has no end yet
  else
    end_at(channel, left_[channel] > 0 ? now_ + left_[channel] / rate : now_);
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
    for (const auto& [channel, times] : flows_[link]) {
      if (!take(channel)) continue;
      for (const Crossing& crossing : routes_[channel]) changed_.push_back(crossing.link);
    }
  }
}

// The few of them whose rates do change, nearly always: those on links that have changed, with all others as they are,
// and then those for whom that is not fair any more. A flow has its rate if some link on its way is full and has none
// that is faster (its bottleneck); that is what makes rates max-min fair.
bool FluidNetwork::share_nearby() {
  constexpr int most_tries = 6;
  ++reach_;
  reached_.clear();
  // Once for each link, however many of its flows have come or gone.
  for (const auto link : changed_) {
    if (std::exchange(link_reached_[link], reach_) == reach_) continue;
    for (const Flow& flow : flows_[link]) take(flow.channel);
  }
  for (int i = 0; i < most_tries; ++i) {
    if (2 * reached_.size() > active_.size()) return false;
    looked_.clear();
    for (const auto channel : reached_)
      for (const Crossing& crossing : routes_[channel]) looked_.push_back(crossing.link);
    std::ranges::sort(looked_);
    looked_.erase(std::unique(looked_.begin(), looked_.end()), looked_.end());
    for (const auto link : looked_) room_[link] = room_beside(link);
    share_among(reached_);
    bool more = false;
    for (const auto link : looked_) more |= take_unfair(link);
    if (!more) return true;
  }
  return false;
}

// What flows that are not looked at leave of a link.
double FluidNetwork::room_beside(std::uint32_t link) const {
  double room = capacity_[link];
  for (const auto& [channel, times] : flows_[link])
    if (channel_reached_[channel] != reach_) room -= rate_[channel] * times;
  return std::max(0.0, room);
}

// Of a link whose flows share it anew those others for whom that is not fair.
bool FluidNetwork::take_unfair(std::uint32_t link) {
  double used = 0, fastest = 0, slowest = std::numeric_limits<double>::infinity();
  for (const auto& [channel, times] : flows_[link]) {
    const bool is_new = channel_reached_[channel] == reach_;
    const double rate = is_new ? shared_[channel] : rate_[channel];
    used += rate * times;
    if (!is_new) continue;
    fastest = std::max(fastest, rate / weight_[channel]);
    if (bottleneck_[channel] == link) slowest = std::min(slowest, rate / weight_[channel]);
  }
  const bool is_full = used >= capacity_[link] * (1 - tiny);
  bool more = false;
  for (const auto& [channel, times] : flows_[link]) {
    if (channel_reached_[channel] == reach_) continue;
    const double level = rate_[channel] / weight_[channel];
    const bool may_be_faster = bottleneck_[channel] == link && (!is_full || fastest > level * (1 + tiny));
    if (may_be_faster || level > slowest * (1 + tiny)) more |= take(channel);
  }
  return more;
}

bool FluidNetwork::take(std::uint32_t channel) {
  if (std::exchange(channel_reached_[channel], reach_) == reach_) return false;
  reached_.push_back(channel);
  return true;
}

void FluidNetwork::share() {
  if (changed_.empty()) return;
  if (!senders_.empty()) {
    changed_.clear();
    share_in_turn();
    for (const auto channel : active_) set_rate(channel, shared_[channel]);
  } else {
    if (share_nearby()) {
      changed_.clear();
    } else {
      reach();
      for (const auto channel : reached_)
        for (const Crossing& crossing : routes_[channel]) room_[crossing.link] = capacity_[crossing.link];
      share_among(reached_);
    }
    for (const auto channel : reached_) set_rate(channel, shared_[channel]);
  }
  if (buckets_.empty()) return;
  std::fill(flow_.begin(), flow_.end(), 0);
  for (const auto channel : active_)
    for (const Crossing& crossing : routes_[channel]) flow_[crossing.link] += rate_[channel] * crossing.times;
}

// The first messages of all senders, then the second ones, … Where the first of a sender fills its line, which it
// mostly does, nothing is left to be looked for.
void FluidNetwork::share_in_turn() {
  room_ = capacity_;
  const auto is_blocked = [this](std::uint32_t channel) {
    return std::ranges::any_of(routes_[channel], [this](const Crossing& crossing) {
      return room_[crossing.link] <= tiny * capacity_[crossing.link];
    });
  };
  bool more = true;
  for (std::size_t turn = 0; more; ++turn) {
    more = false;
    turn_.clear();
    for (const auto& queue : queues_) {
      if (queue.size() <= turn) continue;
      more = true;
      if (is_blocked(queue[turn]))
        shared_[queue[turn]] = 0;
      else
        turn_.push_back(queue[turn]);
    }
    serve_alone(turn_);
    share_among(turn_);
  }
}

// Those that share no link with others of these get what their slowest link has, and are taken out.
void FluidNetwork::serve_alone(std::vector<std::uint32_t>& channels) {
  for (const auto channel : channels)
    for (const Crossing& crossing : routes_[channel]) ++users_[crossing.link];
  const auto is_alone = [this](std::uint32_t channel) {
    return std::ranges::all_of(routes_[channel], [this](const Crossing& each) { return users_[each.link] == 1; });
  };
  const auto shares = std::ranges::partition(channels, is_alone);
  for (const auto channel : channels)
    for (const Crossing& crossing : routes_[channel]) users_[crossing.link] = 0;
  for (const auto channel : std::ranges::subrange(channels.begin(), shares.begin())) {
    shared_crossings_ += routes_[channel].size();
    double rate = std::numeric_limits<double>::infinity();
    for (const Crossing& crossing : routes_[channel]) rate = std::min(rate, room_[crossing.link] / crossing.times);
    for (const Crossing& crossing : routes_[channel])
      room_[crossing.link] = std::max(0.0, room_[crossing.link] - rate * crossing.times);
    shared_[channel] = rate;
  }
  channels.erase(channels.begin(), shares.begin());
}

// Water filling of the room that is left: the link with least of it for the weights of its flows decides their rates;
// they leave, and so on. A link that others leave has more for those that stay, never less: what a heap knows of it is
// at most what it has, and is looked at again when it comes up.
void FluidNetwork::share_among(const std::vector<std::uint32_t>& channels) {
  used_.clear();
  for (const auto channel : channels) {
    shared_[channel] = -1;
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
        if (shared_[channel] == -1) {
          shared_[channel] = -2;
          bottleneck_[channel] = link;
          settling_.push_back(channel);
        }
    }
    for (const auto channel : settling_) {
      shared_[channel] = level * weight_[channel];
      for (const Crossing& crossing : routes_[channel]) {
        room_[crossing.link] = std::max(0.0, room_[crossing.link] - shared_[channel] * crossing.times);
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
