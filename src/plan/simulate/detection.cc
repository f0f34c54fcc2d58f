// A world's control planes after a loss: each rank's rules are those that run (engine::ControlWatch), and only clock
// and connections are simulated.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <queue>

#include "engine/control_watch.h"
#include "ranvier/error.h"
#include "ranvier/simulate.h"

namespace ranvier {
namespace {

using engine::ControlWatch;
using engine::News;
using engine::NewsType;

class Survivors {
 public:
  Survivors(const Topology& topology, Rank lost, Loss loss)
      : topology_(topology), lost_(lost), knows_(static_cast<std::size_t>(topology.world)) {
    for (const Rank rank : engine::control_neighbours(lost, topology.world)) {
      const ControlWatch& watch =
          watches_.try_emplace(rank, rank, topology.world, options_, time(first_ns)).first->second;
      every_ns_ = static_cast<double>(watch.heartbeat_every().count());
    }
    for (const auto& each : watches_) {
      const Rank rank = each.first;
      wake(rank);
      const double way = way_ns(lost, rank).value();
      beats(lost, first_ns, 0, [&](double ns) { push(ns + way, What::heartbeat, rank, lost_); });
      if (loss == Loss::process) push(way, What::end, rank, lost_);
    }
  }

  Detection run() {
    for (; !events_.empty(); events_.pop()) {
      const Event event = events_.top();
      if (knows_[static_cast<std::size_t>(event.rank)]) continue;
      ControlWatch::Outcome outcome;
      happen(event, outcome);
      if (outcome.fault) pass_on(event, std::move(outcome.pass_on));
    }
    found_.all_know_ns = last_ns_;
    if (known_ + 1 < topology_.world) found_.all_know_ns = std::numeric_limits<double>::infinity();
    return std::move(found_);
  }

 private:
  enum class What : std::uint8_t { tick, heartbeat, end, news };
  struct Event {
    double ns;            // since the loss
    std::uint64_t order;  // of equal times the first made comes first
    What what;
    Rank rank;  // to whom it happens
    Rank from;
    std::size_t news;  // of news_
    bool operator>(const Event& other) const { return ns != other.ns ? ns > other.ns : order > other.order; }
  };

  // Long enough for a rank's first heartbeats to have been heard.
  static constexpr double first_ns = -1e9;

  static ControlWatch::Time time(double ns) {
    return ControlWatch::Time(std::chrono::nanoseconds(std::llround(ns - first_ns)));
  }

  void push(double ns, What what, Rank rank, Rank from, std::size_t news = 0) {
    events_.push({ns, order_++, what, rank, from, news});
  }

  // When `rank` sends heartbeats: multiples of the golden ratio are spread evenly.
  template <class Do>
  void beats(Rank rank, double from_ns, double until_ns, const Do& each) const {
    constexpr double golden_ratio = 0.6180339887498949;
    double whole = 0;
    const double phase = std::modf(rank * golden_ratio, &whole) * every_ns_;
    for (double ns = from_ns + phase; ns < until_ns; ns += every_ns_) each(ns);
  }

  // A control plane looks around when it sends heartbeats and whenever it hears something.
  void wake(Rank rank) {
    const double until = std::chrono::duration<double, std::nano>(options_.dead_after).count() + 2 * every_ns_;
    beats(rank, first_ns, until, [&](double ns) { push(ns, What::tick, rank, rank); });
    for (const Rank neighbour : engine::control_neighbours(rank, topology_.world))
      if (neighbour != lost_)
        if (const auto way = way_ns(neighbour, rank))
          beats(neighbour, first_ns, until, [&](double ns) { push(ns + *way, What::tick, rank, neighbour); });
  }

  // None through the lost rank.
  std::optional<double> way_ns(Rank from, Rank to) const {
    double ns = 0;
    Vertex at = from;
    for (const LinkNumber number : topology_.path(from, to)) {
      const Link& link = topology_.links[number];
      if (at != from && at == lost_) return std::nullopt;
      ns += static_cast<double>(link.speed.latency.count());
      at = link.to;
    }
    return ns;
  }

  void happen(const Event& event, ControlWatch::Outcome& outcome) {
    const auto now = time(event.ns);
    // Of those that are not near the lost rank nothing is needed but that they hear of it and tell others.
    std::optional<ControlWatch> stranger;
    const auto found = watches_.find(event.rank);
    if (found == watches_.end()) stranger.emplace(event.rank, topology_.world, options_, now);
    ControlWatch& watch = stranger ? *stranger : found->second;
    switch (event.what) {
      case What::heartbeat:
        return watch.heard(event.from, {.type = NewsType::heartbeat, .origin = event.from}, now, outcome);
      case What::tick:
        return watch.tick(now, outcome);
      case What::end:
        return watch.ended(event.from, outcome);
      case What::news:
        return watch.heard(event.from, news_[event.news], now, outcome);
    }
  }

  void pass_on(const Event& event, std::vector<News> news) {
    knows_[static_cast<std::size_t>(event.rank)] = true;
    ++known_;
    last_ns_ = event.ns;
    if (event.what != What::news) {
      found_.by_themselves.push_back({event.rank, event.ns});
      news_.push_back(std::move(news.front()));
    }
    const std::size_t number = event.what == What::news ? event.news : news_.size() - 1;
    for (const Rank neighbour : engine::control_neighbours(event.rank, topology_.world))
      if (neighbour != lost_ && !knows_[static_cast<std::size_t>(neighbour)])
        if (const auto way = way_ns(event.rank, neighbour))
          push(event.ns + *way, What::news, neighbour, event.rank, number);
  }

  const Topology& topology_;
  const Rank lost_;
  const engine::ControlOptions options_;
  double every_ns_ = 0;
  std::map<Rank, ControlWatch> watches_;  // of the neighbours of the lost one
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  std::vector<News> news_;
  std::vector<bool> knows_;
  Rank known_ = 0;
  double last_ns_ = 0;
  Detection found_;
};

}  // namespace

Detection simulate_detection(const Topology& topology, Rank lost, Loss loss) {
  if (topology.world < 2 || lost < 0 || lost >= topology.world)
    throw Error(ErrorKind::usage,
                fmt::format("rank {} of {} is lost; of two or more ranks one may be, and others notice it", lost,
                            topology.world));
  return Survivors(topology, lost, loss).run();
}

}  // namespace ranvier
