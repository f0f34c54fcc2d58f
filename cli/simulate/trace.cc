// Google: Trace Event Format (2016): complete events ("ph": "X"), times in microseconds.
#include "simulate/trace.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace ranvier::simulation {
namespace {

using nlohmann::json;

constexpr int step_track = 0;
constexpr int message_track = 1;

json event(const std::string& name, int process, Rank thread, double begin_ns, double end_ns) {
  return {{"name", name},         {"ph", "X"},
          {"pid", process},       {"tid", thread},
          {"ts", begin_ns / 1e3}, {"dur", (end_ns - begin_ns) / 1e3}};
}

json name(const char* what, int process, Rank thread, const std::string& text) {
  return {{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", {{"name", text}}}};
}

}  // namespace

json trace_json(const StepPrediction& step, const std::vector<SimulatedMessage>& messages) {
  json events = json::array();
  if (!step.timeline.empty()) {
    events.push_back(name("process_name", step_track, 0, "step"));
    events.push_back(name("thread_name", step_track, 0, "compute"));
    events.push_back(name("thread_name", step_track, 1, "network"));
    events.push_back(name("thread_name", step_track, 2, "critical path"));
    for (const auto& each : step.timeline)
      events.push_back(event(each.name, step_track, each.computes ? 0 : 1, each.begin_ns, each.end_ns));
  }
  for (const std::size_t number : step.critical_path) {
    const auto& each = step.timeline[number];
    events.push_back(event(each.name, step_track, 2, each.begin_ns, each.end_ns));
  }
  if (!messages.empty()) events.push_back(name("process_name", message_track, 0, "messages by sender"));
  for (const auto& each : messages)
    events.push_back(event(fmt::format("round {}: {} B to rank {}", each.round, each.bytes, each.to), message_track,
                           each.from, each.begin_ns, each.end_ns));
  return {{"traceEvents", events}, {"displayTimeUnit", "ns"}};
}

}  // namespace ranvier::simulation
