// Google: Trace Event Format (2016): complete events ("ph": "X"), times in microseconds.
#include "simulate/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <queue>
#include <utility>

namespace ranvier::simulation {
namespace {

using nlohmann::json;

constexpr int step_track = 0;
constexpr int message_track = 1;

struct Span {
  std::string name;
  std::int64_t begin;  // whole ns, so that what ends where another begins does so in every viewer
  std::int64_t end;
};

Span span_of(std::string name, double begin_ns, double end_ns) {
  return {std::move(name), std::llround(begin_ns), std::llround(end_ns)};
}

// A process of the trace. Viewers stack what is inside another span of its thread, and draw spans that only overlap
// wrongly; so each kind of spans has as many threads as it has spans at once.
class Track {
 public:
  Track(json& events, int process, const char* title) : events_(events), process_(process) {
    add_name("process_name", title);
  }

  // Each goes to the first of the threads `title`, `title (2)`, … that is free: no fewer would do.
  void add(const std::string& title, std::vector<Span> spans) {
    if (spans.empty()) return;
    std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
    using Busy = std::pair<std::int64_t, int>;  // until when which thread is
    std::priority_queue<Busy, std::vector<Busy>, std::greater<>> busy;
    std::priority_queue<int, std::vector<int>, std::greater<>> free;
    const int first = next_;
    for (const Span& span : spans) {
      for (; !busy.empty() && busy.top().first <= span.begin; busy.pop()) free.push(busy.top().second);
      if (free.empty()) {
        free.push(next_);
        add_name("thread_name", next_ == first ? title : fmt::format("{} ({})", title, next_ - first + 1));
        ++next_;
      }
      const int thread = free.top();
      free.pop();
      busy.emplace(span.end, thread);
      events_.push_back({{"name", span.name},
                         {"ph", "X"},
                         {"pid", process_},
                         {"tid", thread},
                         {"ts", static_cast<double>(span.begin) / 1e3},
                         {"dur", static_cast<double>(span.end - span.begin) / 1e3}});
    }
  }

 private:
  void add_name(const char* what, const std::string& text) {
    events_.push_back({{"name", what}, {"ph", "M"}, {"pid", process_}, {"tid", next_}, {"args", {{"name", text}}}});
  }

  json& events_;
  const int process_;
  int next_ = 0;  // thread
};

}  // namespace

json trace_json(const StepPrediction& step, const std::vector<SimulatedMessage>& messages) {
  json events = json::array();
  if (!step.timeline.empty()) {
    Track track(events, step_track, "step");
    std::vector<Span> computing;
    std::vector<Span> sending;
    std::vector<Span> critical;
    for (const auto& each : step.timeline)
      (each.computes ? computing : sending).push_back(span_of(each.name, each.begin_ns, each.end_ns));
    for (const std::size_t number : step.critical_path) {
      const auto& each = step.timeline[number];
      critical.push_back(span_of(each.name, each.begin_ns, each.end_ns));
    }
    track.add("compute", std::move(computing));
    track.add("network", std::move(sending));
    track.add("critical path", std::move(critical));
  }
  if (!messages.empty()) {
    Track track(events, message_track, "messages by sender");
    std::map<Rank, std::vector<Span>> by_sender;
    for (const auto& each : messages)
      by_sender[each.from].push_back(span_of(fmt::format("round {}: {} B to rank {}", each.round, each.bytes, each.to),
                                             each.begin_ns, each.end_ns));
    for (auto& [sender, spans] : by_sender) track.add(fmt::format("rank {}", sender), std::move(spans));
  }
  return {{"traceEvents", events}, {"displayTimeUnit", "ns"}};
}

}  // namespace ranvier::simulation
