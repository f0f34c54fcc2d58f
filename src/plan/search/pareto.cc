#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "ranvier/design_search.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

constexpr double cheapest_part = 1.0 / 30;

// A point that is faster than those of lower costs goes behind them; one that is as fast and cheaper takes a place.
void add(std::vector<ParetoPoint>& front, ParetoPoint point) {
  constexpr double rounding = 1e-9;
  if (front.empty() || point.time_ns < front.back().time_ns * (1 - rounding))
    front.push_back(std::move(point));
  else if (point.cost_usd < front.back().cost_usd)
    front.back() = std::move(point);
}

// A number of dollars or nanoseconds with the unit that people use for it.
std::string dollars(double value) {
  if (value >= 1e6) return fmt::format("${:.3g} M", value / 1e6);
  return value >= 1e3 ? fmt::format("${:.3g} k", value / 1e3) : fmt::format("${:.3g}", value);
}
std::string milliseconds(double ns) { return fmt::format("{:.4g} ms", ns / 1e6); }

// From a value to a place on an axis of `length` pixels.
struct Axis {
  double least;
  double most;
  double length;
  double at(double value) const {
    const double span = std::log(most / least);
    return span > 0 ? length * std::log(value / least) / span : length / 2;
  }
  double value(double part) const { return least * std::pow(most / least, part); }
};

}  // namespace

std::vector<ParetoPoint> pareto_front(const DesignProblem& problem, std::size_t points, const DesignSolver& solver) {
  DesignProblem limited = problem;
  limited.objective = Objective::time;
  for (Constraint& constraint : limited.constraints)
    if (constraint.budget) constraint.relation = Relation::at_most;
  const double most = solver(limited).cost_usd;
  limited.constraints.push_back(
      {.text = "cost", .coefficients = problem.dollars_per_gbps, .relation = Relation::at_most});
  std::vector<ParetoPoint> front;
  for (std::size_t i = 0; i < points && most > 0; ++i) {
    const double part = points > 1 ? static_cast<double>(i) / static_cast<double>(points - 1) : 1;
    limited.constraints.back().limit = most * std::pow(cheapest_part, 1 - part);
    try {
      const Design design = solver(limited);
      add(front, {design.cost_usd, design.time_ns, design.bandwidth_gbps});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;  // so little money and the other constraints contradict each other
    }
  }
  return front;
}

std::string pareto_svg(const std::vector<ParetoPoint>& front, const std::string& title) {
  constexpr double left = 90, top = 40, width = 560, height = 340;
  const auto by_cost = [](const ParetoPoint& a, const ParetoPoint& b) { return a.cost_usd < b.cost_usd; };
  const auto by_time = [](const ParetoPoint& a, const ParetoPoint& b) { return a.time_ns < b.time_ns; };
  std::string svg = fmt::format(
      R"svg(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
<text x="{2}" y="24" font-size="15">{3}</text>
)svg",
      left + width + 40, top + height + 60, left, title);
  if (!front.empty()) {
    const Axis x{std::ranges::min_element(front, by_cost)->cost_usd, std::ranges::max_element(front, by_cost)->cost_usd,
                 width};
    const Axis y{std::ranges::min_element(front, by_time)->time_ns, std::ranges::max_element(front, by_time)->time_ns,
                 height};
    for (const double part : {0.0, 0.25, 0.5, 0.75, 1.0}) {
      const double across = left + part * width;
      const double up = top + height - part * height;
      svg += fmt::format(R"svg(<path d="M{:.1f} {}V{}M{} {:.1f}H{}" stroke="#ddd"/>
<text x="{:.1f}" y="{}" text-anchor="middle">{}</text>
<text x="{}" y="{:.1f}" text-anchor="end">{}</text>
)svg",
                         across, top, top + height, left, up, left + width, across, top + height + 18,
                         dollars(x.value(part)), left - 8, up + 4, milliseconds(y.value(part)));
    }
    std::string line;
    for (const ParetoPoint& point : front) {
      const double across = left + x.at(point.cost_usd);
      const double up = top + height - y.at(point.time_ns);
      line += fmt::format("{}{:.1f} {:.1f}", line.empty() ? "M" : "L", across, up);
      svg += fmt::format(
          R"svg(<circle cx="{:.1f}" cy="{:.1f}" r="3" fill="#1f6fb2"><title>{}, {}: {:.4g} GB/s</title></circle>
)svg",
          across, up, dollars(point.cost_usd), milliseconds(point.time_ns), fmt::join(point.bandwidth_gbps, ", "));
    }
    svg += fmt::format(R"svg(<path d="{}" fill="none" stroke="#1f6fb2" stroke-width="1.5"/>
)svg",
                       line);
  }
  svg += fmt::format(R"svg(<text x="{}" y="{}" text-anchor="middle">cost of the network</text>
<text x="16" y="{}" transform="rotate(-90 16 {})" text-anchor="middle">time of a step</text>
</svg>
)svg",
                     left + width / 2, top + height + 42, top + height / 2, top + height / 2);
  return svg;
}

}  // namespace ranvier
