// A recorded step by its own graph: see docs/decisions/0030 for which of its operations wait for one another.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/simulate/collective_times.h"
#include "plan/simulate/instance.h"
#include "plan/simulate/overlap.h"
#include "plan/simulate/shares.h"
#include "plan/simulate/step.h"
#include "plan/trace_groups.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

// Who communicates in an operation.
struct Who {
  Axes axes = {};
  Rank hops = 1;  // of messages: from the sender to the receiver
  std::string name = {};
  auto operator<=>(const Who& other) const { return std::tie(axes, hops) <=> std::tie(other.axes, other.hops); }
};

class Groups {
 public:
  Groups(const ExecutionTrace& trace, const Topology& topology) : trace_(trace), topology_(topology) {
    dims_ = plan::grid_dims(topology);
    if (dims_.empty()) dims_ = {topology.world};
    std::ranges::reverse(dims_);
  }

  const Who& of(const Operation& operation) {
    const Collective what = operation.communication->collective;
    if (what == Collective::send || what == Collective::recv)
      return known(message(operation), what == Collective::send ? "senders" : "receivers");
    if (operation.process_group.empty() && !operation.dimensions.empty()) return along(operation);
    return of_process_group(operation);
  }

 private:
  const Who& known(const Who& who, std::string_view name) {
    Who& found = known_[fmt::format("{} {}", name, who.hops)];
    found = who;
    found.name = name;
    return found;
  }

  Who message(const Operation& operation) const {
    Rank hops = 1;
    if (operation.ends) {
      for (const Rank end : {operation.ends->first, operation.ends->second})
        plan::check_rank(end, topology_.world, topology_.name, operation);
      hops = (operation.ends->second - operation.ends->first + topology_.world) % topology_.world;
    }
    return {.axes = everybody(), .hops = hops};
  }

  Axes everybody() const {
    if (topology_.world == 1) return {};
    return {{.size = topology_.world, .stride = 1}};
  }

  const Who& along(const Operation& operation) {
    plan::check_dimensions(operation, dims_.size(), topology_.name);
    Who who;
    std::vector<std::size_t> numbers;
    Rank stride = 1;
    for (std::size_t i = 0; i < dims_.size(); stride *= dims_[i++]) {
      if (!operation.dimensions[i] || dims_[i] == 1) continue;
      numbers.push_back(i);
      const bool goes_on = !who.axes.empty() && who.axes.back().stride * who.axes.back().size == stride;
      if (goes_on)
        who.axes.back().size *= dims_[i];
      else
        who.axes.push_back({.size = dims_[i], .stride = stride});
    }
    const std::string name = fmt::format("ranks along dimensions {}", fmt::join(numbers, ", "));
    who.name = name;
    return known_[name] = std::move(who);
  }

  const Who& of_process_group(const Operation& operation) {
    const std::string& group = operation.process_group;
    const auto ranks = plan::ranks_of(trace_, operation);
    if (ranks.empty()) return known_["all ranks"] = {.axes = everybody(), .name = "all ranks"};
    const auto [found, is_new] = known_.try_emplace("process group " + group);
    if (!is_new) return found->second;
    for (const Rank rank : ranks) plan::check_rank(rank, topology_.world, topology_.name, operation);
    const auto axes = plan::axes_of(ranks, topology_.world);
    if (!axes)
      throw Error(ErrorKind::usage,
                  fmt::format("{} is of process group '{}', and {} ranks do not divide into groups like it; ranks of a "
                              "group stand evenly apart, as 0, 4, 8, or so along several axes",
                              operation.name, group, topology_.world));
    found->second = {.axes = *axes, .name = "process group " + group};
    return found->second;
  }

  const ExecutionTrace& trace_;
  const Topology& topology_;
  std::vector<Rank> dims_;  // the innermost first
  std::map<std::string, Who> known_;
};

class TraceRun {
 public:
  TraceRun(const ExecutionTrace& trace, const StepSimulation& how, plan::CollectiveTimes& times)
      : trace_(trace), how_(how), times_(times), under_way_(times.rates()), nodes_(trace.operations.size()) {
    if (!how.options.slowdown.empty()) slowest_ = *std::ranges::max_element(how.options.slowdown);
  }

  // The longest way through the graph, of collectives by their bounds.
  double least_ns() {
    lay_nodes(true);
    double latest = 0;
    for (Node& node : nodes_) {
      node.end_ns += node.least_ns + node.compute_ns;
      latest = std::max(latest, node.end_ns);
      for (const std::size_t each : node.next) nodes_[each].end_ns = std::max(nodes_[each].end_ns, node.end_ns);
    }
    return latest;
  }

  StepPrediction run() {
    lay_nodes(false);
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (nodes_[i].missing == 0) ready_.push(i);
    begin_all();
    std::vector<std::size_t> ended;
    while (computing_ || !under_way_.empty()) {
      const auto computing = computing_;
      under_way_.is_all_there_is(!computing);
      ended.clear();
      under_way_.go_on_until(computing ? nodes_[*computing].end_ns : std::numeric_limits<double>::infinity(), nullptr,
                             ended);
      for (const std::size_t number : ended) end(sent_[number]);
      if (ended.empty()) end(*std::exchange(computing_, std::nullopt));
      begin_all();
    }
    return finish();
  }

 private:
  struct Node {
    std::size_t missing = 0;             // of what it waits for
    std::vector<std::size_t> next = {};  // who waits for it
    double compute_ns = 0;
    const SimulatedRun* run = nullptr;  // of what it sends
    double least_ns = 0;                // or what that takes at least
    const Who* who = nullptr;
    bool receives = false;
    double end_ns = 0;
    std::optional<std::size_t> interval = {};  // its own, or the last before it
  };

  void lay_nodes(bool bounds) {
    Groups groups(trace_, times_.topology());
    plan::TraceChains<Who> chains;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const Operation& operation = trace_.operations[i];
      Node& node = nodes_[i];
      Who who;
      if (operation.communication) {
        who = groups.of(operation);
        take(*operation.communication, who, node, bounds);
      } else {
        node.compute_ns = operation.compute_ns * slowest_;
      }
      for (const std::size_t before : operation.after) wait(i, before);
      if (node.run != nullptr || node.least_ns > 0 || node.compute_ns > 0)
        if (const auto before = chains.before(operation, who, i)) wait(i, *before);
    }
  }

  void wait(std::size_t number, std::size_t before) {
    ++nodes_[number].missing;
    nodes_[before].next.push_back(number);
  }

  void take(Communication what, const Who& who, Node& node, bool bounds) {
    if (who.axes.empty() || !(what.bytes > 0) || who.hops == 0) return;
    node.receives = what.collective == Collective::recv;
    if (node.receives) what.collective = Collective::send;
    const bool is_sum = what.collective == Collective::all_reduce;
    const std::string algorithm = is_sum ? plan::algorithm_for(how_, what.bytes) : "ring";
    if (bounds) {
      node.least_ns = times_.at_least(what, who.axes, who.hops, algorithm).ns;
      return;
    }
    node.run = &times_.run(what, who.axes, who.hops, algorithm);
    node.who = &names_.try_emplace(who.name, who).first->second;
  }

  // A receive has the time of its own, and no links: those that it is sent over are busy with what this rank sends.
  const SimulatedRun* without_links(const SimulatedRun& run) {
    auto& copy = waits_[&run];
    if (!copy) {
      copy = std::make_unique<SimulatedRun>(run);
      copy->links.clear();
    }
    return copy.get();
  }

  void begin_all() {
    while (!ready_.empty()) {
      const std::size_t number = ready_.top();
      ready_.pop();
      Node& node = nodes_[number];
      if (node.run != nullptr) {
        const auto sent = under_way_.add(
            {.run = node.receives ? without_links(*node.run) : node.run, .sending_ns = node.run->ns, .codec_ns = 0});
        sent_.push_back(number);
        under_way_.begin(sent);
        node.interval = add_interval(node, number);
      } else if (node.compute_ns > 0) {
        computing_ = number;
        node.end_ns = under_way_.now() + node.compute_ns;
        result_.compute_ns += node.compute_ns;
        node.interval = add_interval(node, number);
      } else {
        end(number);
      }
    }
  }

  std::size_t add_interval(const Node& node, std::size_t number) {
    before_.push_back(node.interval);
    result_.timeline.push_back(
        {.name = trace_.operations[number].name, .computes = node.run == nullptr, .begin_ns = under_way_.now()});
    return result_.timeline.size() - 1;
  }

  void end(std::size_t number) {
    const Node& node = nodes_[number];
    if (node.run != nullptr || node.compute_ns > 0) {
      result_.timeline[*node.interval].end_ns = under_way_.now();
      last_ = node.interval;
    }
    for (const std::size_t each : node.next) {
      Node& waits = nodes_[each];
      waits.interval = node.interval;
      if (--waits.missing == 0) ready_.push(each);
    }
  }

  StepPrediction finish() {
    result_.step_ns = under_way_.now();
    result_.exposed_communication_ns = std::max(0.0, result_.step_ns - result_.compute_ns);
    std::map<std::string, StepPrediction::RoleShare> roles;
    for (std::size_t i = 0; i < sent_.size(); ++i) {
      const Node& node = nodes_[sent_[i]];
      const auto& operation = under_way_.operations()[i];
      const double ns = node.run->ns;
      const double exposed = ns > 0 ? operation.exposed_ns / ns : 0;
      if (node.receives)
        shares_.add_wait(*node.run, exposed);
      else
        shares_.add(*node.run, {.wall = exposed, .work = operation.exposed_work}, ns);
      result_.communication_ns += ns;
      auto& role = roles[node.who->name];
      role.role = node.who->name;
      role.communication_ns += ns;
      role.exposed_ns += operation.exposed_ns;
    }
    for (auto& [name, role] : roles) result_.roles.push_back(std::move(role));
    for (auto at = last_; at; at = before_[*at]) result_.critical_path.push_back(*at);
    std::ranges::reverse(result_.critical_path);
    shares_.fill(result_, times_.common_links().of(shares_.runs()));
    return std::move(result_);
  }

  const ExecutionTrace& trace_;
  const StepSimulation& how_;
  plan::CollectiveTimes& times_;
  plan::UnderWay under_way_;
  plan::Shares shares_;
  double slowest_ = 1;
  std::vector<Node> nodes_;
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready_;  // the first of the trace first
  std::vector<std::size_t> sent_;  // the nodes of what is or was under way, as under_way_ numbers it
  std::optional<std::size_t> computing_;
  std::map<std::string, Who> names_;
  std::map<const SimulatedRun*, std::unique_ptr<SimulatedRun>> waits_;
  StepPrediction result_;
  std::vector<std::optional<std::size_t>> before_;  // by interval: the one whose end let it begin
  std::optional<std::size_t> last_;                 // the interval that ended last
};

}  // namespace

void check_world(const ExecutionTrace& trace, const Topology& topology) {
  Groups groups(trace, topology);
  for (const Operation& operation : trace.operations)
    if (operation.communication) groups.of(operation);
}

StepPrediction simulate_step(const ExecutionTrace& trace, const Topology& topology, const StepSimulation& how) {
  plan::CollectiveTimes times({.name = trace.name}, topology, how.options);
  return plan::simulate_step(trace, how, times);
}

namespace plan {

StepPrediction simulate_step(const ExecutionTrace& trace, const StepSimulation& how, CollectiveTimes& times) {
  return TraceRun(trace, how, times).run();
}

double least_step_ns(const ExecutionTrace& trace, const StepSimulation& how, CollectiveTimes& times) {
  return TraceRun(trace, how, times).least_ns();
}

}  // namespace plan

}  // namespace ranvier
