#include "plan/simulate/overlap.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ranvier::plan {
namespace {

constexpr double tiny_part = 1e-12;

// By link, and of the codec: for which part of its time each sharer needs it, and, behind them, who is first.
class Needs {
 public:
  explicit Needs(std::size_t sharers) : sharers_(sharers) {}

  void add(std::vector<double> needs) { all_.push_back(std::move(needs)); }

  // Water filling: the rates of all rise together, and what is needed for all of its time stops those that need it.
  std::vector<double> rates() const {
    std::vector<double> rates(sharers_, -1);
    for (;;) {
      double level = 1;
      const std::vector<double>* least = nullptr;
      for (const auto& needs : all_) {
        double room = std::max(0.0, 1 - needs[sharers_]);
        double needed = 0;
        for (std::size_t i = 0; i < sharers_; ++i)
          if (rates[i] < 0)
            needed += needs[i];
          else
            room -= needs[i] * rates[i];
        room = std::max(0.0, room);
        if (needed <= tiny_part || room / needed >= level) continue;
        level = room / needed;
        least = &needs;
      }
      bool settled = false;
      for (std::size_t i = 0; i < sharers_; ++i)
        if (rates[i] < 0 && (least == nullptr || (*least)[i] > tiny_part)) {
          rates[i] = level;
          settled = true;
        }
      if (!settled) return rates;
    }
  }

 private:
  std::size_t sharers_;
  std::vector<std::vector<double>> all_;
};

}  // namespace

const std::vector<double>& SharedRates::among(const std::vector<Sharer>& sharers, const SimulatedRun* first) {
  const auto [known, added] = known_.try_emplace({sharers, first});
  if (!added) return known->second;
  std::vector<const SimulatedRun*> runs;
  for (const Sharer& sharer : sharers) runs.push_back(sharer.run);
  if (first != nullptr) runs.push_back(first);
  Needs needs(sharers.size());
  for (auto& link : links_.of(runs)) {
    link.busy.resize(sharers.size() + 1);
    for (double& part : link.busy) part = std::min(1.0, part);  // more where it had saved up a burst
    for (std::size_t i = 0; i < sharers.size(); ++i) link.busy[i] *= sharers[i].sending;
    needs.add(std::move(link.busy));
  }
  std::vector<double> codec(sharers.size() + 1);
  for (std::size_t i = 0; i < sharers.size(); ++i) codec[i] = 1 - sharers[i].sending;
  needs.add(std::move(codec));
  return known->second = needs.rates();
}

std::size_t UnderWay::add(Operation operation) {
  left_ns_.push_back(operation.sending_ns + operation.codec_ns);
  operations_.push_back(operation);
  return operations_.size() - 1;
}

void UnderWay::begin(std::size_t number) {
  operations_[number].begin_ns = now_;
  active_.insert(std::ranges::upper_bound(active_, number), number);
}

void UnderWay::go_on_until(double ns, const SimulatedRun* first, std::vector<std::size_t>& ended) {
  if (active_.empty()) {
    if (std::isfinite(ns)) now_ = ns;
    return;
  }
  key_.clear();
  for (const std::size_t number : active_) {
    const Operation& each = operations_[number];
    const double all = each.sending_ns + each.codec_ns;
    key_.push_back({each.run, all > 0 ? each.sending_ns / all : 1});
  }
  const std::vector<double>& rates = rates_.among(key_, first);
  double passes = ns - now_;
  double work = 0;
  bool one_ends = false;
  for (std::size_t i = 0; i < active_.size(); ++i) {
    work += rates[i];
    const double left = left_ns_[active_[i]];
    if (!(rates[i] > 0) || left / rates[i] > passes) continue;
    passes = left / rates[i];
    one_ends = true;
  }
  if (!one_ends && !(passes > 0)) return;
  now_ = one_ends ? now_ + passes : ns;
  still_.clear();
  for (std::size_t i = 0; i < active_.size(); ++i) {
    const std::size_t number = active_[i];
    Operation& each = operations_[number];
    const double done = passes * rates[i];
    const double all = each.sending_ns + each.codec_ns;
    if (nothing_else_) {
      each.exposed_ns += work > 0 ? passes * rates[i] / work : 0;
      each.exposed_work += all > 0 ? done / all : 0;
    }
    left_ns_[number] -= done;
    if (left_ns_[number] > tiny_part * all) {
      still_.push_back(number);
      continue;
    }
    each.end_ns = now_;
    ended.push_back(number);
  }
  active_.swap(still_);
}

std::size_t Overlap::start(Operation operation) {
  const std::size_t number = under_way_.add(operation);
  auto& lane = lanes_[number % lanes_.size()];
  if (!lane) {
    lane = number;
    under_way_.begin(number);
  }
  return number;
}

void Overlap::go_on_until(double ns, const SimulatedRun* first) {
  do {
    ended_.clear();
    under_way_.go_on_until(ns, first, ended_);
    if (!ended_.empty()) last_ended_ns_ = under_way_.now();
    for (const std::size_t ended : ended_) {
      auto& lane = lanes_[ended % lanes_.size()];
      lane.reset();
      const std::size_t next = ended + lanes_.size();
      if (next >= operations().size()) continue;
      under_way_.operations()[next].behind = ended;
      lane = next;
      under_way_.begin(next);
    }
  } while (!ended_.empty());
}

double Overlap::finish() {
  under_way_.is_all_there_is(true);
  go_on_until(std::numeric_limits<double>::infinity());
  return under_way_.now();
}

void LeastOverlap::start(double now, double ns, double codec_ns, const void* kind,
                         const std::vector<double>& links_ns) {
  double& lane = lanes_[next_++ % lanes_.size()];
  lane = std::max(lane, now) + ns + codec_ns;
  end_ = std::max(end_, lane);
  codec_ = std::max(codec_, now) + codec_ns;
  end_ = std::max(end_, codec_);
  auto& links = links_[kind];
  links.resize(links_ns.size());
  for (std::size_t i = 0; i < links.size(); ++i) {
    links[i] = std::max(links[i], now) + links_ns[i];
    end_ = std::max(end_, links[i]);
  }
}

}  // namespace ranvier::plan
