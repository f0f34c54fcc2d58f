#include "plan/words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "plan/planner.h"
#include "ranvier/sync.h"

namespace ranvier::planning {
namespace {

constexpr double unlimited = 1e15;                 // bytes: a bucket that nothing fills
constexpr double worthwhile = codec_margin * 100;  // percent

std::string bucket_text(double bytes) {
  if (bytes > unlimited) return "one bucket";
  return bytes < 1e6 ? fmt::format("{:.3g} KB buckets", bytes / 1e3) : fmt::format("{:.3g} MB buckets", bytes / 1e6);
}

std::string algorithm_text(const std::string& algorithm) {
  return algorithm == by_size ? "the fastest algorithm by size" : algorithm;
}

std::string placement_text(const std::vector<Rank>& placement) {
  return placement.empty() ? "ranks as they are numbered" : fmt::format("ranks placed {}", fmt::join(placement, ","));
}

bool differ(const std::vector<PlanNetwork>& networks, const std::function<bool(const PlanNetwork&)>& from_first) {
  return std::ranges::any_of(networks, from_first);
}
bool has_transports(const Question& question) {
  return differ(question.networks, [&](const auto& each) { return each.transport != question.networks[0].transport; });
}
bool has_placements(const Question& question) {
  return differ(question.networks, [](const auto& each) { return !each.placement.empty(); });
}

// The first that is like that: the best of them.
const PlanChoice* best_of(const std::vector<PlanChoice>& ranked, const std::function<bool(const PlanChoice&)>& like) {
  const auto found = std::ranges::find_if(ranked, like);
  return found == ranked.end() ? nullptr : &*found;
}

// How much shorter a step is than another one, in percent; below 0 where it is longer. Nothing is shorter than none.
double gain(const PlanChoice& choice, const PlanChoice& than) {
  return choice.step_ns > 0 ? (than.step_ns / choice.step_ns - 1) * 100 : 0;
}

std::string gains_text(double percent) {
  if (std::abs(percent) < 0.05) return "gains nothing";
  return fmt::format("{} {:.1f} %", percent > 0 ? "gains" : "loses", std::abs(percent));
}

std::string three_digits(double value) {
  return value < 1000 ? fmt::format("{:.3g}", value) : fmt::format("{:.0f}", value);
}

void compare_codecs(const Question& question, const std::vector<PlanChoice>& ranked, std::vector<std::string>& said) {
  const double gbit = question.speed.bytes_per_second * 8e-9;
  const std::string& sync = ranked.front().sync;
  const auto with = [&](const std::string& codec) {
    return best_of(ranked, [&](const PlanChoice& each) { return each.sync == sync && each.codec == codec; });
  };
  const PlanChoice* plain = with("");
  if (plain == nullptr || question.search.codecs.size() < 2) return;
  const PlanChoice* best = nullptr;
  std::vector<std::string> verdicts;
  for (const CodecSpeed& codec : question.search.codecs) {
    const PlanChoice* coded = codec.spec.empty() ? nullptr : with(codec.spec);
    if (coded == nullptr) continue;
    if (best == nullptr || coded->step_ns < best->step_ns) best = coded;
    verdicts.push_back(fmt::format("codec: at {} Gbit/s {} {}: {}", three_digits(gbit), codec.spec,
                                   gains_text(gain(*coded, *plain)),
                                   gain(*coded, *plain) >= worthwhile ? "on" : "off"));
  }
  if (best == nullptr) return;
  const double most = gain(*best, *plain);
  if (most >= worthwhile)
    said.push_back(fmt::format("compression: pays here, {} most: it {}", best->codec, gains_text(most)));
  else
    said.push_back(
        fmt::format("compression: does not pay here; at best it {}, with {}", gains_text(most), best->codec));
  said.insert(said.end(), verdicts.begin(), verdicts.end());
}

// One sentence for each alternative of a kind, against the best with what was chosen. `kind_of` names it.
void compare(const std::string& what, const std::vector<PlanChoice>& ranked, std::vector<std::string>& said,
             const std::function<std::string(const PlanChoice&)>& kind_of) {
  const std::string chosen = kind_of(ranked.front());
  std::vector<std::string> seen{chosen};
  for (const PlanChoice& each : ranked) {
    const std::string kind = kind_of(each);
    if (std::ranges::count(seen, kind) > 0) continue;
    seen.push_back(kind);
    said.push_back(fmt::format("{}: {} {} against {}", what, kind, gains_text(gain(each, ranked.front())), chosen));
  }
}

// Why a step of its own is worth less than an exact one.
std::string price(const std::string& sync) {
  return make_sync_policy(sync, {})->server() ? "its gradients are late" : "it averages less often";
}

void compare_policies(const Question& question, const std::vector<PlanChoice>& ranked, std::vector<std::string>& said) {
  const auto& policies = question.search.policies;
  const PlanChoice* exact = best_of(ranked, [&](const PlanChoice& each) {
    const auto its = std::ranges::find(policies, each.sync, &PlanPolicy::spec);
    return its == policies.end() || its->margin == 0;
  });
  if (exact == nullptr) return;
  for (const PlanPolicy& policy : policies) {
    if (policy.margin == 0) continue;
    const PlanChoice* best = best_of(ranked, [&](const PlanChoice& each) { return each.sync == policy.spec; });
    if (best == nullptr) continue;
    said.push_back(fmt::format("policy: {} {} against {}, and has to gain {:.0f} % since {}: {}", policy.spec,
                               gains_text(gain(*best, *exact)), exact->sync, policy.margin * 100, price(policy.spec),
                               best->cost() < exact->cost() ? "on" : "off"));
  }
}

}  // namespace

std::string describe(const Question& question, const PlanChoice& choice) {
  std::string text = algorithm_text(choice.algorithm);
  if (!question.trace)
    text += fmt::format(", {}, {}", bucket_text(choice.bucket_bytes), choice.codec.empty() ? "no codec" : choice.codec);
  const PlanNetwork& network = question.networks[choice.network];
  if (has_transports(question)) text += ", " + network.transport;
  if (has_placements(question)) text += ", " + placement_text(network.placement);
  if (question.search.policies.size() > 1 || choice.sync != "bsp") text += ", by " + choice.sync;
  if (question.divisions.size() > 1) text += ", " + question.names[choice.division];
  return text;
}

const PlanChoice* second_best(const std::vector<PlanChoice>& ranked) {
  const PlanChoice& best = ranked.front();
  return best_of(ranked, [&](const PlanChoice& choice) {
    const bool same_kind = choice.codec == best.codec && choice.sync == best.sync && choice.network == best.network &&
                           choice.division == best.division;
    const bool same_time = same_kind && choice.step_ns <= best.step_ns * (1 + 1e-9);
    return !same_time && (!same_kind || choice.algorithm != best.algorithm);
  });
}

std::vector<std::string> reasons(const Question& question, const std::vector<PlanChoice>& ranked) {
  const PlanChoice& best = ranked.front();
  const PlanChoice* second = second_best(ranked);
  std::vector<std::string> said{
      fmt::format("chosen: {}: a step of {:.4f} ms, {:.4f} of them waiting for the network", describe(question, best),
                  best.step_ns / 1e6, best.step.exposed_communication_ns / 1e6),
      second == nullptr
          ? "second: none: nothing else takes another time"
          : fmt::format("second: {}: {:.1f} % {}", describe(question, *second), std::abs(gain(best, *second)),
                        second->step_ns >= best.step_ns  ? "longer"
                        : second->margin <= codec_margin ? "shorter, which no prediction tells apart"
                                                         : "shorter, but " + price(second->sync))};
  compare_codecs(question, ranked, said);
  if (has_transports(question))
    compare("transport", ranked, said,
            [&](const PlanChoice& each) { return question.networks[each.network].transport; });
  if (has_placements(question))
    compare("placement", ranked, said,
            [&](const PlanChoice& each) { return placement_text(question.networks[each.network].placement); });
  if (question.divisions.size() > 1)
    compare("degrees", ranked, said, [&](const PlanChoice& each) { return question.names[each.division]; });
  compare_policies(question, ranked, said);
  if (question.trace)
    said.push_back(
        "gradients: not told from all else that the groups of a trace send, so that no buckets, codecs and policies "
        "were weighed");
  return said;
}

nlohmann::json to_json(const Question& question, const PlanChoice& choice) {
  const PlanNetwork& network = question.networks[choice.network];
  return {{"algorithm", choice.algorithm},
          {"bucket_bytes", choice.bucket_bytes > unlimited ? nlohmann::json() : nlohmann::json(choice.bucket_bytes)},
          {"codec", choice.codec},
          {"sync", choice.sync},
          {"transport", network.transport},
          {"placement", network.placement},
          {"workload", question.names[choice.division]},
          {"step_ns", choice.step_ns},
          {"margin", choice.margin},
          {"exposed_communication_ns", choice.step.exposed_communication_ns}};
}

}  // namespace ranvier::planning
