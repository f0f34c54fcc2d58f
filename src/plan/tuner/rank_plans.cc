// The search: every combination gets a bound, and those whose bound is not too slow already are simulated, the most
// promising first (A. Land, A. Doig: An automatic method of solving discrete programming problems. Econometrica 28
// (1960)). What is simulated shares its collectives.
#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "plan/simulate/policy.h"
#include "plan/simulate/step.h"
#include "plan/tuner/possible.h"

namespace ranvier {

Rank averaging_ranks(const Workload& workload, Rank world) {
  if (const auto given = workload.groups.find(Role::weight_gradient); given != workload.groups.end())
    return plan::size_of(given->second);
  return replicas_in(workload, world);
}

StepSimulation with_codec(StepSimulation how, const CodecSpeed& codec, Rank replicas) {
  double codec_ns = codec.encode_ns_per_byte + codec.decode_ns_per_byte;
  if (!codec.summable) {
    // The owner of a part decodes what all others send it and codes the sum, which all others decode.
    const double others = static_cast<double>(replicas - 1) / replicas;
    codec_ns = codec.encode_ns_per_byte * (1 + 1.0 / replicas) + 2 * others * codec.decode_ns_per_byte;
    how.averages_by_owners = true;
  }
  how.bucket_bytes *= codec.wire_bytes;
  how.gradient_scale = codec.wire_bytes;
  how.codec_ns_per_byte = codec_ns / codec.wire_bytes;
  return how;
}

std::vector<PlanPolicy> plan_policies(bool has_nodes, bool are_unequal) {
  std::vector<PlanPolicy> all{{}, {"local:16", 0.1}};
  if (has_nodes) all.push_back({"node:16", 0.05});
  if (are_unequal) all.insert(all.end(), {{"group", 0.05}, {"async", 0.15}});
  return all;
}

PlanPolicy plan_policy(std::string_view spec) {
  const auto known = plan_policies(true, true);
  const auto same = std::ranges::find(known, spec, &PlanPolicy::spec);
  if (same != known.end()) return *same;
  const auto machine = make_sync_policy(spec, {});
  double margin = machine->averages_parameters() ? 0.1 : 0;
  if (machine->has_outer_step()) margin = 0.15;
  if (machine->gradient_level() > 0 && machine->gradient_level() < machine->levels().size()) margin = 0.05;
  if (machine->server()) margin = machine->groups() ? 0.05 : 0.15;
  return {.spec = std::string(spec), .margin = margin};
}

namespace {

// Parts of a step's time below which nothing is told apart, so that nobody simulates for them: between what may be
// chosen; and, of codecs, networks and divisions that are not, between ways to use them, whose losses are given in
// tenths of a percent.
constexpr double least_gain = 1e-4;
constexpr double least_told = 1e-3;

class Search {
 public:
  Search(const std::vector<Workload>& divisions, const std::vector<PlanNetwork>& networks, const PlanSearch& search)
      : divisions_(divisions), networks_(networks), search_(search) {}

  std::vector<PlanChoice> run() {
    std::optional<Error> ended;
    try {
      search();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::timeout) throw;
      ended = error;
    }
    if (std::ranges::none_of(search_.policies, [](const auto& policy) { return policy.spec == "bsp"; }))
      std::erase_if(found_, [](const Found& each) { return each.choice.sync == "bsp"; });
    if (found_.empty() && ended) throw *ended;
    if (found_.empty()) plan::refuse_all(refusal_);
    // Equal ones in the order in which they were asked for, not in that of their bounds.
    std::ranges::sort(found_, {}, &Found::order);
    std::stable_sort(found_.begin(), found_.end(),
                     [](const Found& a, const Found& b) { return a.choice.cost() < b.choice.cost(); });
    std::vector<PlanChoice> choices;
    for (Found& each : found_) choices.push_back(std::move(each.choice));
    return choices;
  }

 private:
  struct Candidate {
    std::size_t order;
    std::size_t division;
    std::size_t network;
    std::size_t codec;
    std::string algorithm;
    double bucket_bytes;
    double least_ns;
  };
  struct Found {
    std::size_t order;
    PlanChoice choice;
  };

  void search() {
    collect();
    // The most promising of all first: what comes later is then known to be slower by its bound alone.
    std::vector<const Candidate*> by_bound;
    for (const Candidate& each : candidates_) by_bound.push_back(&each);
    std::ranges::stable_sort(by_bound, {}, &Candidate::least_ns);
    if (search_.exhaustive || !pays_to_estimate()) {
      for (const Candidate* each : by_bound)
        if (search_.exhaustive || best_.may_change(*each, each->least_ns)) simulate(*each);
    } else if (!by_bound.empty()) {
      simulate(*by_bound.front());  // before many are estimated
      for (const auto& [about_ns, each] : estimated(by_bound))
        if (each != by_bound.front() && best_.may_change(*each, about_ns)) simulate(*each);
    }
    for (const PlanPolicy& policy : search_.policies)
      if (policy.spec != "bsp") relax(policy);
  }

  plan::CollectiveTimes& times(std::size_t division, std::size_t network) {
    auto& slot = times_[{division, network}];
    if (!slot) {
      SimulateOptions options = networks_[network].options;
      options.most_messages = 0;  // of many that are not alike, which takes seconds for each size
      if (search_.enough) options.enough = [this] { return !found_.empty() && search_.enough(); };
      slot = std::make_unique<plan::CollectiveTimes>(divisions_[division], networks_[network].topology, options);
    }
    return *slot;
  }

  std::vector<std::string> algorithms_of(const CodecSpeed& codec, const PlanNetwork& network) const {
    if (!codec.summable) return {"direct"};
    std::vector<std::string> result = search_.algorithms;
    if (!network.by_size.empty()) result.emplace_back(by_size);
    return result;
  }

  StepSimulation how(const Candidate& each) const {
    return with_codec(plainly(each), search_.codecs[each.codec],
                      averaging_ranks(divisions_[each.division], networks_[each.network].topology.world));
  }

  StepSimulation plainly(const Candidate& each) const {
    const PlanNetwork& network = networks_[each.network];
    StepSimulation result{.algorithm = each.algorithm, .bucket_bytes = each.bucket_bytes, .options = network.options};
    // Owners of parts, to which the others send their codes, are no way to average floats.
    const bool is_free = !search_.codecs[each.codec].summable && !network.by_size.empty();
    if (each.algorithm == by_size || is_free) {
      result.algorithm = network.by_size.back().algorithm;
      result.by_size = network.by_size;
    }
    return result;
  }

  void collect() {
    for (std::size_t codec = 0; codec < search_.codecs.size(); ++codec)
      for (std::size_t division = 0; division < divisions_.size(); ++division)
        for (std::size_t network = 0; network < networks_.size(); ++network)
          for (const std::string& algorithm : algorithms_of(search_.codecs[codec], networks_[network])) {
            if (search_.enough && search_.enough()) {
              if (!candidates_.empty()) return;
              throw Error(ErrorKind::timeout, "planning was ended before it knew a single way to communicate");
            }
            for (const double bucket : search_.bucket_bytes) {
              Candidate each{candidates_.size(), division, network, codec, algorithm, bucket, 0};
              const auto least = plan::if_possible(
                  [&] { return plan::least_step_ns(divisions_[division], how(each), times(division, network)); },
                  refusal_);
              if (!least) break;  // other buckets will not help
              each.least_ns = *least;
              candidates_.push_back(std::move(each));
            }
          }
  }

  // The best so far of what reasons are given by, and of what differs in more than its bucket.
  class Best {
   public:
    void note(const Candidate& each, double ns) {
      note(of_codec_, each.codec, ns);
      note(of_network_, each.network, ns);
      note(of_division_, each.division, ns);
      note(of_kind_, std::tuple(each.division, each.network, each.codec, each.algorithm), ns);
    }

    // Whether a candidate of this time may still be the best of its codec, network or division, or one of the two best.
    bool may_change(const Candidate& each, double ns) const {
      const auto may_be_best = [&](const std::map<std::size_t, double>& best, std::size_t of) {
        const auto found = best.find(of);
        return found == best.end() || ns < found->second * (1 - least_told);
      };
      if (may_be_best(of_codec_, each.codec) || may_be_best(of_network_, each.network) ||
          may_be_best(of_division_, each.division))
        return true;
      double least = std::numeric_limits<double>::infinity();
      double second = least;
      for (const auto& [key, kinds_ns] : of_kind_) {
        second = std::min(second, std::max(least, kinds_ns));
        least = std::min(least, kinds_ns);
      }
      return ns <= second * (1 - least_gain);
    }

   private:
    template <class Map, class Key>
    static void note(Map& map, const Key& key, double ns) {
      const auto [found, added] = map.try_emplace(key, ns);
      if (!added) found->second = std::min(found->second, ns);
    }

    std::map<std::size_t, double> of_codec_;
    std::map<std::size_t, double> of_network_;
    std::map<std::size_t, double> of_division_;
    std::map<std::tuple<std::size_t, std::size_t, std::size_t, std::string>, double> of_kind_;
  };

  // Hundreds of tensors make buckets of as many lengths, each of which is a simulation of its own. Means of unequal
  // replicas are no estimates of one step.
  bool pays_to_estimate() const {
    constexpr std::size_t many = 40;
    const auto has_many = [](const Workload& workload) {
      std::size_t averages = 0;
      for (const Layer& layer : workload.layers)
        averages +=
            static_cast<std::size_t>(std::ranges::count_if(layer.weight_gradient.communications, plan::is_average));
      return averages > many;
    };
    return !search_.unequal.any() && std::ranges::any_of(divisions_, has_many);
  }

  // Those that may matter by their estimates, the most promising first.
  std::vector<std::pair<double, const Candidate*>> estimated(const std::vector<const Candidate*>& by_bound) {
    std::vector<std::pair<double, const Candidate*>> result;
    Best best;
    for (const Candidate* each : by_bound) {
      if (!best.may_change(*each, each->least_ns)) continue;
      const auto about = plan::if_possible(
          [&] {
            return plan::estimated_step_ns(divisions_[each->division], how(*each),
                                           times(each->division, each->network));
          },
          refusal_);
      if (!about) continue;
      best.note(*each, *about);
      result.emplace_back(*about, each);
    }
    std::ranges::stable_sort(result, {}, &std::pair<double, const Candidate*>::first);
    return result;
  }

  void simulate(const Candidate& each) {
    auto step = plan::if_possible(
        [&] { return plan::simulate_step(divisions_[each.division], how(each), times(each.division, each.network)); },
        refusal_);
    if (!step) return;
    PlanChoice choice = choice_of(each, "bsp", std::move(*step));
    if (search_.unequal.any() && !become_mean(choice, each)) return;
    best_.note(each, choice.step_ns);
    found_.push_back({each.order, std::move(choice)});
  }

  // Of many steps by its policy, of replicas as they are. False where these cannot go by it.
  bool become_mean(PlanChoice& choice, const Candidate& each) {
    const PlanNetwork& network = networks_[each.network];
    const Workload& workload = divisions_[each.division];
    const Rank replicas = replicas_in(workload, network.topology.world);
    const auto mean = plan::if_possible(
        [&] {
          check_replicas(workload, network.topology.world, search_.unequal);
          const auto machine = make_sync_policy(
              choice.sync,
              {.steps_per_epoch = 0, .steps = steps_of_a_policy, .world = static_cast<std::uint64_t>(replicas)});
          PolicySimulation simulation{.unequal = search_.unequal};
          if (machine->levels().size() > 1 && search_.levels) simulation.levels = search_.levels(*machine, replicas);
          if (!search_.codecs[each.codec].spec.empty()) simulation.inside = plainly(each);  // no codec is of theirs
          return plan::simulate_policy(*machine, workload, how(each), times(each.division, each.network), simulation);
        },
        refusal_);
    if (!mean) return false;
    choice.step_ns = mean->step_ns;
    choice.step.exposed_communication_ns = mean->exposed_communication_ns;
    return true;
  }

  PlanChoice choice_of(const Candidate& each, const std::string& sync, StepPrediction step) const {
    PlanChoice choice{.algorithm = each.algorithm,
                      .bucket_bytes = each.bucket_bytes,
                      .codec = search_.codecs[each.codec].spec,
                      .sync = sync,
                      .network = each.network,
                      .division = each.division,
                      .step = std::move(step)};
    choice.step_ns = choice.step.step_ns;
    choice.margin = choice.codec.empty() ? 0 : codec_margin;
    return choice;
  }

  // A codec, division and network for a policy by which replicas average now and then.
  struct Apart {
    std::size_t order;
    std::size_t codec;
    std::size_t division;
    std::size_t network;
    double least_ns;  // of a step without averages
  };

  void relax(const PlanPolicy& policy) {
    if (candidates_.empty()) return;
    std::vector<Apart> all;
    for (std::size_t codec = 0; codec < search_.codecs.size(); ++codec)
      for (std::size_t division = 0; division < divisions_.size(); ++division)
        for (std::size_t network = 0; network < networks_.size(); ++network) {
          const auto same = [&](const Candidate& each) {
            return each.codec == codec && each.division == division && each.network == network;
          };
          const auto any = std::ranges::find_if(candidates_, same);
          if (any == candidates_.end()) continue;
          const double least_ns =
              plan::least_step_ns(plan::without_averages(divisions_[division]), how(*any), times(division, network));
          all.push_back({candidates_.size() + relaxed_++, codec, division, network, least_ns});
        }
    std::ranges::stable_sort(all, {}, &Apart::least_ns);
    refusal_ = "nothing that it could do is possible here";
    double best_ns = std::numeric_limits<double>::infinity();
    for (const Apart& each : all)
      if (search_.exhaustive || may_matter(each, policy, best_ns)) relax(policy, each, best_ns);
    const auto is_its = [&](const Found& one) { return one.choice.sync == policy.spec; };
    if (search_.left_out && std::ranges::none_of(found_, is_its)) search_.left_out(policy.spec, refusal_);
  }

  // Whether it may be the policy's best, one of the two best of all, or the best of its codec, division or network.
  bool may_matter(const Apart& each, const PlanPolicy& policy, double best_ns) const {
    if (each.least_ns < best_ns * (1 - least_gain)) return true;
    const double least_cost = each.least_ns * (1 + policy.margin);
    return least_cost < best_cost([&](const PlanChoice& choice) { return choice.division == each.division; }) ||
           least_cost < best_cost([&](const PlanChoice& choice) { return choice.network == each.network; }) ||
           least_cost < best_cost([&](const PlanChoice& choice) {
             return choice.codec == search_.codecs[each.codec].spec && choice.sync == policy.spec;
           }) ||
           least_cost < second_cost();
  }

  // Of what differs from the best in more than its bucket.
  double second_cost() const {
    if (found_.empty()) return std::numeric_limits<double>::infinity();
    const PlanChoice& best =
        std::ranges::min_element(found_, {}, [](const Found& each) { return each.choice.cost(); })->choice;
    const auto kind = [](const PlanChoice& choice) {
      return std::tie(choice.algorithm, choice.codec, choice.sync, choice.network, choice.division);
    };
    return best_cost([&](const PlanChoice& choice) { return kind(choice) != kind(best); });
  }

  template <typename Like>
  double best_cost(const Like& like) const {
    double best = std::numeric_limits<double>::infinity();
    for (const Found& each : found_)
      if (like(each.choice)) best = std::min(best, each.choice.cost());
    return best * (1 - least_told);
  }

  // It is quickest with the quickest average.
  void relax(const PlanPolicy& policy, const Apart& each, double& best_ns) {
    const auto machine = make_sync_policy(policy.spec, {});
    const std::string& codec = search_.codecs[each.codec].spec;
    if (!codec.empty() && search_.takes_codec && !search_.takes_codec(*machine, codec)) return;
    if (machine->levels().size() > 1 && !networks_[each.network].placement.empty()) return;
    const auto [best, average_ns] = quickest_average(each.codec, each.division, each.network);
    if (best == nullptr) return;
    // Where gradients are averaged in steps, inside nodes, buckets hide behind backward.
    std::vector<const Candidate*> ways{best};
    if (machine->gradient_level() > 0)
      for (const Candidate& other : candidates_)
        if (&other != best && other.algorithm == best->algorithm && other.codec == best->codec &&
            other.division == best->division && other.network == best->network)
          ways.push_back(&other);
    for (const Candidate* way : ways) weigh(policy, each, *way, best_ns);
  }

  void weigh(const PlanPolicy& policy, const Apart& each, const Candidate& way, double& best_ns) {
    const auto& workload = divisions_[each.division];
    PlanChoice choice =
        choice_of(way, policy.spec, plan::simulate_step(workload, how(way), times(each.division, each.network)));
    if (!become_mean(choice, way)) return;
    choice.margin += policy.margin;
    best_ns = std::min(best_ns, choice.step_ns);
    found_.push_back({each.order, std::move(choice)});
  }

  std::pair<const Candidate*, double> quickest_average(std::size_t codec, std::size_t division, std::size_t network) {
    const Workload averages = plan::only_averages(divisions_[division]);
    std::vector<std::pair<double, const Candidate*>> by_bound;
    for (const Candidate& each : candidates_)
      if (each.codec == codec && each.division == division && each.network == network)
        by_bound.emplace_back(plan::least_step_ns(averages, how(each), times(division, network)), &each);
    std::ranges::stable_sort(by_bound, {}, &std::pair<double, const Candidate*>::first);
    std::pair<const Candidate*, double> best{nullptr, std::numeric_limits<double>::infinity()};
    for (const auto& [least_ns, each] : by_bound) {
      if (least_ns >= best.second) break;
      const auto step = plan::if_possible(
          [&, one = each] { return plan::simulate_step(averages, how(*one), times(division, network)).step_ns; },
          refusal_);
      if (step && *step < best.second * (1 - 1e-9)) best = {each, *step};
    }
    return best;
  }

  const std::vector<Workload>& divisions_;
  const std::vector<PlanNetwork>& networks_;
  const PlanSearch& search_;
  std::map<std::pair<std::size_t, std::size_t>, std::unique_ptr<plan::CollectiveTimes>> times_;
  std::vector<Candidate> candidates_;
  std::vector<Found> found_;
  std::size_t relaxed_ = 0;
  Best best_;
  std::string refusal_ = "none was named";
};

}  // namespace

std::vector<PlanChoice> rank_plans(const std::vector<Workload>& divisions, const std::vector<PlanNetwork>& networks,
                                   const PlanSearch& search) {
  return Search(divisions, networks, search).run();
}

std::vector<PlanChoice> rank_plans(const Workload& workload, const Topology& topology, const PlanSearch& search) {
  return rank_plans({workload}, {{.topology = topology, .options = search.options, .by_size = search.by_size}}, search);
}

}  // namespace ranvier
