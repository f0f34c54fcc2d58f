// A training step: computing goes through the layers, forwards and backwards, and waits for the collectives inside a
// divided layer (tensor, expert, pipeline groups). Gradients become ready from the last layer to the first, go into
// buckets, and the buckets are averaged one after another beside it (S. Li et al.: PyTorch distributed: Experiences on
// accelerating data parallel training. VLDB 2020). While computing waits for a collective, a bucket under way has what
// that leaves of the links that both need.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "plan/simulate/shares.h"
#include "plan/simulate/step.h"
#include "ranvier/workload_file.h"

namespace ranvier {
namespace {

bool is_replicated(Role role) {
  return role == Role::data || role == Role::expert_data || role == Role::weight_gradient;
}

// What collectives take in one step, simulated or bounded.
class Collectives {
 public:
  Collectives(const StepSimulation& how, plan::CollectiveTimes& times, bool bounds)
      : how_(how), times_(times), bounds_(bounds) {}

  bool has_peers(const Communication& what) const { return times_.has_peers(what); }

  struct Taken {
    double ns = 0;
    const SimulatedRun* run = nullptr;  // null where it is bounded
  };

  Taken take(const Communication& what) {
    const std::string algorithm = plan::is_average(what) ? algorithm_for(what.bytes) : "ring";
    if (bounds_) return {.ns = times_.at_least(what, algorithm)};
    const SimulatedRun& run = times_.run(what, algorithm);
    return {run.ns, &run};
  }

  // How fast `bucket` goes on while `first` has its share of each link, where 1 is as if it were alone: less where a
  // link has not enough left, and more than 1 where it could do with less.
  double rate_beside(const SimulatedRun& bucket, const SimulatedRun& first) {
    const auto [known, added] = rates_.try_emplace({&bucket, &first}, std::numeric_limits<double>::infinity());
    if (!added) return known->second;
    std::map<std::pair<std::string_view, std::string_view>, double> left;
    for (const auto& link : first.links) left[{link.from, link.to}] = std::max(0.0, 1 - link.utilisation);
    for (const auto& link : bucket.links)
      if (const auto found = left.find({link.from, link.to}); found != left.end() && link.utilisation > 0)
        known->second = std::min(known->second, found->second / link.utilisation);
    return known->second;
  }

 private:
  const std::string& algorithm_for(double bytes) const {
    for (const FastestAlgorithm& each : how_.by_size)
      if (bytes <= static_cast<double>(each.up_to)) return each.algorithm;
    return how_.algorithm;
  }

  const StepSimulation& how_;
  plan::CollectiveTimes& times_;
  const bool bounds_;
  std::map<std::pair<const SimulatedRun*, const SimulatedRun*>, double> rates_;
};

class StepRun {
 public:
  StepRun(const Workload& workload, const StepSimulation& how, plan::CollectiveTimes& times, bool bounds)
      : workload_(workload), how_(how), collectives_(how, times, bounds), names_(!bounds) {
    if (!how.options.slowdown.empty())
      slowest_ = *std::max_element(how.options.slowdown.begin(), how.options.slowdown.end());
  }

  StepPrediction run() {
    compute("loading and optimizer", workload_.idle_ns);
    for (const Layer& layer : workload_.layers) {
      compute("forward", layer.forward.compute_ns);
      for (const auto& each : layer.forward.communications) wait_for(layer, each);
    }
    for (std::size_t i = workload_.layers.size(); i-- > 0;) {
      const Layer& layer = workload_.layers[i];
      const std::string name = names_ ? "backward " + layer.name : "";
      compute(name, layer.weight_gradient.compute_ns);
      for (const auto& each : layer.weight_gradient.communications) start_or_wait(layer, each);
      compute(name, layer.input_gradient.compute_ns);
      for (const auto& each : layer.input_gradient.communications) wait_for(layer, each);
      for (auto& [role, bucket] : buckets_)
        if (bucket.bytes >= how_.bucket_bytes) close(role, bucket);
    }
    for (auto& [role, bucket] : buckets_) close(role, bucket);
    return finish();
  }

 private:
  struct Open {
    double bytes = 0;
  };

  std::size_t add(StepPrediction::Interval interval) {
    result_.timeline.push_back(std::move(interval));
    return result_.timeline.size() - 1;
  }

  void compute(const std::string& name, double ns) {
    if (!(ns > 0)) return;
    ns *= slowest_;
    result_.compute_ns += ns;
    const std::size_t last = result_.timeline.size();
    // Neighbours of one name are one interval: the layers of the forward pass.
    if (computing_ && *computing_ + 1 == last && result_.timeline.back().name == name) {
      result_.timeline.back().end_ns += ns;
    } else {
      before_.push_back(computing_);
      computing_ = add({.name = name, .computes = true, .begin_ns = now_, .end_ns = now_ + ns});
    }
    now_ += ns;
  }

  void wait_for(const Layer& layer, const Communication& what) {
    if (!collectives_.has_peers(what) || !(what.bytes > 0)) return;
    const auto [ns, run] = collectives_.take(what);
    if (run != nullptr) {
      delay_buckets(*run);
      shares_.add(*run, 1);
    }
    before_.push_back(computing_);
    computing_ =
        add({.name = names_ ? fmt::format("{} {} of {}", name_of(what.role), name_of(what.collective), layer.name) : "",
             .computes = false,
             .begin_ns = now_,
             .end_ns = now_ + ns});
    now_ += ns;
    result_.communication_ns += ns;
    share(what.role).communication_ns += ns;
    share(what.role).exposed_ns += ns;
  }

  void start_or_wait(const Layer& layer, const Communication& what) {
    if (!is_replicated(what.role)) return wait_for(layer, what);
    if (!collectives_.has_peers(what) || !(what.bytes > 0)) return;
    if (plan::is_average(what))
      buckets_[what.role].bytes += what.bytes * how_.gradient_scale;
    else
      start(what, names_ ? fmt::format("{} of {}", name_of(what.collective), layer.name) : "", 0);
  }

  void close(Role role, Open& bucket) {
    if (!(bucket.bytes > 0)) return;
    start({.collective = Collective::all_reduce, .bytes = bucket.bytes, .role = role},
          names_ ? fmt::format("bucket {}", count_++) : "", bucket.bytes * how_.codec_ns_per_byte);
    bucket.bytes = 0;
  }

  // Beside computing, behind what was started before.
  void start(const Communication& what, std::string name, double codec_ns) {
    const auto [sending_ns, run] = collectives_.take(what);
    const double ns = sending_ns + codec_ns;
    const double begin = std::max(free_, now_);
    before_.push_back(free_ > now_ ? sending_ : computing_);
    sending_ = add({.name = std::move(name), .computes = false, .begin_ns = begin, .end_ns = begin + ns});
    free_ = begin + ns;
    result_.communication_ns += ns;
    share(what.role).communication_ns += ns;
    overlapped_.push_back({what.role, *sending_, run, ns, ns > 0 ? sending_ns / ns : 0});
  }

  // Those that are under way or wait for their turn, by a collective that begins now and that computing waits for.
  void delay_buckets(const SimulatedRun& first) {
    auto at = overlapped_.end();
    while (at != overlapped_.begin() && result_.timeline[std::prev(at)->interval].end_ns > now_) --at;
    const double until = now_ + first.ns;
    for (double free = now_; at != overlapped_.end(); ++at) {
      auto& interval = result_.timeline[at->interval];
      const double left = interval.end_ns - std::max(interval.begin_ns, now_);
      if (interval.begin_ns > now_) interval.begin_ns = free;
      // Encoding and decoding need no link.
      const double rate = std::min(1.0, collectives_.rate_beside(*at->run, first) / at->sending_share);
      const double beside = std::max(0.0, until - free);
      interval.end_ns = left < beside * rate ? free + left / rate : free + beside + (left - beside * rate);
      free = free_ = interval.end_ns;
    }
  }

  StepPrediction::RoleShare& share(Role role) {
    const auto found = std::find_if(result_.roles.begin(), result_.roles.end(),
                                    [&](const auto& each) { return each.role == name_of(role); });
    if (found != result_.roles.end()) return *found;
    result_.roles.push_back({.role = std::string(name_of(role))});
    return result_.roles.back();
  }

  StepPrediction finish() {
    result_.step_ns = std::max(now_, free_);
    result_.exposed_communication_ns = result_.step_ns - result_.compute_ns;
    for (const auto& each : overlapped_) {
      const auto& interval = result_.timeline[each.interval];
      const double exposed_ns = std::max(0.0, interval.end_ns - std::max(interval.begin_ns, now_));
      share(each.role).exposed_ns += exposed_ns;
      if (each.run != nullptr && each.ns > 0)
        shares_.add(*each.run, exposed_ns / each.ns, each.ns * (1 - each.sending_share));
    }
    for (auto at = free_ > now_ ? sending_ : computing_; at; at = before_[*at]) result_.critical_path.push_back(*at);
    std::reverse(result_.critical_path.begin(), result_.critical_path.end());
    shares_.fill(result_);
    return std::move(result_);
  }

  const Workload& workload_;
  const StepSimulation& how_;
  Collectives collectives_;
  plan::Shares shares_;
  double slowest_ = 1;
  const bool names_;  // whether anybody looks at the timeline
  StepPrediction result_;
  std::vector<std::optional<std::size_t>> before_;  // by interval: the one whose end let it begin
  std::optional<std::size_t> computing_;            // the last interval of the NPU, and of its gradients
  std::optional<std::size_t> sending_;
  struct Overlapped {
    Role role;
    std::size_t interval;
    const SimulatedRun* run;
    double ns;             // of sending and codec, if nothing delays it
    double sending_share;  // of its time; the rest is that of its codec
  };
  std::vector<Overlapped> overlapped_;  // one after another
  std::map<Role, Open> buckets_;
  std::size_t count_ = 0;
  double now_ = 0;
  double free_ = 0;
};

}  // namespace

StepPrediction simulate_step(const Workload& workload, const Topology& topology, const StepSimulation& how) {
  plan::CollectiveTimes times(workload, topology, how.options);
  return plan::simulate_step(workload, how, times);
}

namespace plan {

bool is_average(const Communication& each) {
  return is_replicated(each.role) && each.collective == Collective::all_reduce;
}

StepPrediction simulate_step(const Workload& workload, const StepSimulation& how, CollectiveTimes& times) {
  return StepRun(workload, how, times, false).run();
}

double least_step_ns(const Workload& workload, const StepSimulation& how, CollectiveTimes& times) {
  return StepRun(workload, how, times, true).run().step_ns;
}

}  // namespace plan

}  // namespace ranvier
