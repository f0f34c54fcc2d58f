// A training step: computing goes through the layers, forwards and backwards, and waits for the collectives inside a
// divided layer (tensor, expert, pipeline groups). Gradients become ready from the last layer to the first, go into
// buckets, and the buckets are averaged beside it, several at once (S. Li et al.: PyTorch distributed: Experiences on
// accelerating data parallel training. VLDB 2020; overlap.h). While computing waits for a collective, buckets under way
// have what that leaves of the links that they need.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "plan/simulate/overlap.h"
#include "plan/simulate/shares.h"
#include "plan/simulate/step.h"
#include "ranvier/workload_file.h"

namespace ranvier {
namespace {

bool is_replicated(Role role) {
  return role == Role::data || role == Role::expert_data || role == Role::weight_gradient;
}

enum class Exactness : std::uint8_t { simulated, estimated, bounded };

// What collectives take in one step.
class Collectives {
 public:
  Collectives(const StepSimulation& how, plan::CollectiveTimes& times, Exactness exactness)
      : how_(how),
        times_(times),
        bounds_(exactness == Exactness::bounded),
        lengths_(exactness == Exactness::simulated ? Lengths::each : Lengths::some) {}

  bool has_peers(const Communication& what) const { return times_.has_peers(what); }

  struct Taken {
    double ns = 0;
    const SimulatedRun* run = nullptr;  // null where it is bounded
    plan::CollectiveTimes::Least least = {};
  };

  // `saved_up_ns`: how much of what links saved up is left for it, as time in which they rested; it takes its part.
  Taken take(const Communication& what, double& saved_up_ns) {
    using Links = plan::CollectiveTimes::Links;
    const std::string algorithm = algorithm_of(what);
    if (bounds_) {
      auto least = times_.at_least(what, algorithm);
      return {.ns = least.ns, .least = std::move(least)};
    }
    const SimulatedRun& run = times_.run(what, algorithm, Links::busy, lengths_);
    if (!(saved_up_ns > 0)) return {run.ns, &run};
    const double gains_ns = std::max(0.0, run.ns - times_.run(what, algorithm, Links::rested, lengths_).ns);
    const double gained_ns = std::min(gains_ns, saved_up_ns);
    saved_up_ns -= gained_ns;
    return {run.ns - gained_ns, &run};
  }

  double longest_rest_ns() const { return times_.longest_rest_ns(); }
  std::vector<plan::CommonLinks::Link> links_of(const std::vector<const SimulatedRun*>& runs) const {
    return times_.common_links().of(runs);
  }

 private:
  using Lengths = plan::CollectiveTimes::Lengths;

  std::string algorithm_of(const Communication& what) const {
    if (plan::is_average(what)) return plan::average_algorithm_for(how_, what.bytes);
    if (what.collective != Collective::all_reduce) return "ring";
    return times_.suited(plan::algorithm_for(how_, what.bytes), what);
  }

  const StepSimulation& how_;
  plan::CollectiveTimes& times_;
  const bool bounds_;
  const Lengths lengths_;
};

class StepRun {
 public:
  StepRun(const Workload& workload, const StepSimulation& how, plan::CollectiveTimes& times, Exactness exactness)
      : workload_(workload),
        how_(how),
        collectives_(how, times, exactness),
        names_(exactness == Exactness::simulated),
        overlap_(times.rates(), std::max<std::size_t>(how.at_once, 1)),
        least_(std::max<std::size_t>(how.at_once, 1)) {
    if (!how.options.slowdown.empty())
      slowest_ = *std::max_element(how.options.slowdown.begin(), how.options.slowdown.end());
  }

  StepPrediction run() {
    compute("loading and optimizer", workload_.idle_ns);
    const double computed_ns = result_.compute_ns;
    compute("pipeline fills and drains", bubble_ns(workload_));
    result_.idle_ns = result_.compute_ns - computed_ns;
    result_.compute_ns = computed_ns;
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
    overlap_.go_on_until(now_);
  }

  void wait_for(const Layer& layer, const Communication& what) {
    if (!collectives_.has_peers(what) || !(what.bytes > 0)) return;
    save_up();
    const auto [own_ns, run, least] = collectives_.take(what, saved_up_ns_);
    overlap_.go_on_until(now_ + own_ns, run);
    const double ns = own_ns * (1 + workload_.fills);
    if (run != nullptr) shares_.add(*run, {.wall = 1, .work = 1}, ns);
    before_.push_back(computing_);
    computing_ =
        add({.name = names_ ? fmt::format("{} {} of {}", name_of(what.role), name_of(what.collective), layer.name) : "",
             .computes = false,
             .begin_ns = now_,
             .end_ns = now_ + ns});
    resting_since_ = now_ + own_ns;
    now_ += ns;
    overlap_.go_on_until(now_);
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

  // Beside computing.
  void start(const Communication& what, std::string name, double codec_ns) {
    save_up();
    const auto [ns, run, least] = collectives_.take(what, saved_up_ns_);
    result_.communication_ns += ns + codec_ns;
    share(what.role).communication_ns += ns + codec_ns;
    if (run == nullptr) return least_.start(now_, ns, codec_ns, least.kind, least.links_ns);
    before_.push_back(computing_);
    beside_.push_back({what.role, add({.name = std::move(name)})});
    overlap_.start({.run = run, .sending_ns = ns, .codec_ns = codec_ns});
  }

  // Links that rest save up, but no more than that: what a step before left is taken for used, so that many steps
  // in a row are no faster than the wire.
  void save_up() {
    const auto idle_since = overlap_.idle_since();
    if (!idle_since) return;
    const double rested_ns = now_ - std::max(*idle_since, resting_since_);
    saved_up_ns_ = std::min(collectives_.longest_rest_ns(), saved_up_ns_ + std::max(0.0, rested_ns));
    resting_since_ = now_;
  }

  StepPrediction::RoleShare& share(Role role) {
    const auto found = std::find_if(result_.roles.begin(), result_.roles.end(),
                                    [&](const auto& each) { return each.role == name_of(role); });
    if (found != result_.roles.end()) return *found;
    result_.roles.push_back({.role = std::string(name_of(role))});
    return result_.roles.back();
  }

  StepPrediction finish() {
    result_.step_ns = std::max({now_, overlap_.finish(), least_.end()});
    result_.exposed_communication_ns = result_.step_ns - result_.compute_ns - result_.idle_ns;
    std::optional<std::size_t> last = computing_;
    double end_ns = now_;
    for (std::size_t i = 0; i < beside_.size(); ++i) {
      const auto& [role, number] = beside_[i];
      const auto& operation = overlap_.operations()[i];
      auto& interval = result_.timeline[number];
      interval.begin_ns = operation.begin_ns;
      interval.end_ns = operation.end_ns;
      if (operation.behind) before_[number] = beside_[*operation.behind].interval;
      if (operation.end_ns > end_ns) {
        end_ns = operation.end_ns;
        last = number;
      }
      share(role).exposed_ns += operation.exposed_ns;
      const double ns = operation.sending_ns + operation.codec_ns;
      if (ns > 0)
        shares_.add(*operation.run, {.wall = operation.exposed_ns / ns, .work = operation.exposed_work},
                    operation.sending_ns, operation.codec_ns);
    }
    for (auto at = last; at; at = before_[*at]) result_.critical_path.push_back(*at);
    std::reverse(result_.critical_path.begin(), result_.critical_path.end());
    shares_.fill(result_, collectives_.links_of(shares_.runs()));
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
  std::optional<std::size_t> computing_;            // the last interval of the NPU
  plan::Overlap overlap_;
  plan::LeastOverlap least_;
  struct Beside {
    Role role;
    std::size_t interval;
  };
  std::vector<Beside> beside_;  // as overlap_ numbers them
  std::map<Role, Open> buckets_;
  std::size_t count_ = 0;
  double now_ = 0;
  double resting_since_ = 0;  // since when links rest, where no bucket is under way
  double saved_up_ns_ = 0;    // of their resting, what nothing has used
};

}  // namespace

void check_world(const Workload& workload, Rank world) { (void)plan::Grid(workload, world); }

Rank replicas_in(const Workload& workload, Rank world) {
  return static_cast<Rank>(world / (std::int64_t{workload.degrees.tensor} * workload.degrees.pipeline));
}

StepPrediction simulate_step(const Workload& workload, const Topology& topology, const StepSimulation& how) {
  plan::CollectiveTimes times(workload, topology, how.options);
  return plan::simulate_step(workload, how, times);
}

namespace plan {

bool is_average(const Communication& each) {
  return is_replicated(each.role) && each.collective == Collective::all_reduce;
}

const std::string& algorithm_for(const StepSimulation& how, double bytes) {
  for (const FastestAlgorithm& each : how.by_size)
    if (bytes <= static_cast<double>(each.up_to)) return each.algorithm;
  return how.algorithm;
}

std::string average_algorithm_for(const StepSimulation& how, double bytes) {
  return how.averages_by_owners ? "direct" : algorithm_for(how, bytes);
}

StepPrediction simulate_step(const Workload& workload, const StepSimulation& how, CollectiveTimes& times) {
  return StepRun(workload, how, times, Exactness::simulated).run();
}

double estimated_step_ns(const Workload& workload, const StepSimulation& how, CollectiveTimes& times) {
  return StepRun(workload, how, times, Exactness::estimated).run().step_ns;
}

double least_step_ns(const Workload& workload, const StepSimulation& how, CollectiveTimes& times) {
  return StepRun(workload, how, times, Exactness::bounded).run().step_ns;
}

}  // namespace plan

}  // namespace ranvier
