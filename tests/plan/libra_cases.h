// The published tool's two bundled problems that its optima are known for (github.com/astra-sim/libra, 0044db0).
#pragma once

#include <string>
#include <vector>

#include "ranvier/design.h"

namespace ranvier {

inline TrafficTerm term(const std::vector<double>& bytes) {
  TrafficTerm result;
  for (std::size_t i = 0; i < bytes.size(); ++i) result.loads.push_back({std::uint32_t{1} << i, bytes[i]});
  return result;
}

inline std::vector<Constraint> constraints(const std::vector<std::string>& texts, std::size_t dimensions) {
  std::vector<Constraint> result;
  for (const auto& text : texts)
    for (auto& each : parse_constraints(text, dimensions)) result.push_back(std::move(each));
  return result;
}

// Forward and input-gradient all_reduces and gradients of GPT-3 on RI(4)_FC(8)_RI(4)_SW(32).
inline DesignProblem gpt3_4d() {
  constexpr double npus = 4096;
  return {.step = {.dimensions = 4,
                   .terms = {term({1207959552, 301989888, 0, 0}), term({0, 452984832, 339738624, 109707264}),
                             term({603979776, 150994944, 0, 0})},
                   .cases = {{.constant_ns = 684448242, .weights = {8, 1, 2}}}},
          .dollars_per_gbps = {npus * 2.00001, npus * 4.00002, npus * 4.00003, npus * 57.40012}};
}

// ResNet-50 on RI(16)_FC(8)_SW(32).
inline DesignProblem resnet50_3d() {
  constexpr double npus = 4096;
  return {.step = {.dimensions = 3,
                   .terms = {term({95635920, 5578762, 772060.8125})},
                   .cases = {{.constant_ns = 1095314, .weights = {1}}}},
          .dollars_per_gbps = {npus * 4.00001, npus * 4.00002, npus * 57.40009}};
}

}  // namespace ranvier
