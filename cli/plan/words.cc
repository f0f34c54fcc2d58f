#include "plan/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace ranvier::planning {
namespace {

constexpr double unlimited = 1e15;  // bytes: a bucket that nothing fills

std::string bucket_text(double bytes) {
  if (bytes > unlimited) return "one bucket";
  return bytes < 1e6 ? fmt::format("{:.3g} KB buckets", bytes / 1e3) : fmt::format("{:.3g} MB buckets", bytes / 1e6);
}

std::string algorithm_text(const std::string& algorithm) {
  return algorithm == by_size ? "the fastest algorithm by size" : algorithm;
}

}  // namespace

std::string describe(const PlanChoice& choice) {
  return fmt::format("{}, {}, {}", algorithm_text(choice.algorithm), bucket_text(choice.bucket_bytes),
                     choice.codec.empty() ? "no codec" : choice.codec);
}

std::string verdict(const std::vector<PlanChoice>& ranked, std::string_view codec, double bytes_per_second) {
  const auto best_with = [&](std::string_view spec) {
    return std::find_if(ranked.begin(), ranked.end(), [&](const PlanChoice& choice) { return choice.codec == spec; });
  };
  const double plain = best_with("")->step.step_ns;
  const double coded = best_with(codec)->step.step_ns;
  const double gain = (plain / coded - 1) * 100;
  return fmt::format("at {:.3g} Gbit/s {} {} {:.1f} %: {}", bytes_per_second * 8e-9, codec,
                     gain > 0 ? "gains" : "loses", std::abs(gain), gain > 0 ? "on" : "off");
}

const PlanChoice* second_best(const std::vector<PlanChoice>& ranked) {
  const PlanChoice& best = ranked.front();
  const auto found = std::find_if(ranked.begin(), ranked.end(), [&](const PlanChoice& choice) {
    const bool same_time = choice.codec == best.codec && choice.step.step_ns <= best.step.step_ns * (1 + 1e-9);
    return !same_time && (choice.algorithm != best.algorithm || choice.codec != best.codec);
  });
  return found == ranked.end() ? nullptr : &*found;
}

nlohmann::json to_json(const PlanChoice& choice) {
  return {{"algorithm", choice.algorithm},
          {"bucket_bytes", choice.bucket_bytes > unlimited ? nlohmann::json() : nlohmann::json(choice.bucket_bytes)},
          {"codec", choice.codec},
          {"step_ns", choice.step.step_ns},
          {"exposed_communication_ns", choice.step.exposed_communication_ns}};
}

}  // namespace ranvier::planning
