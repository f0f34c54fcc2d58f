// Workers at their own pace over parameter servers, as src/replica/parameter_server.cc and async_group.cc have them: a
// worker asks rank 0 for samples, computes, pushes its gradient to all servers, each of which applies its part and
// sends back what it holds, and goes on from that. Who may begin when is decided by the gate that decides it in
// training (SampleGate), groups and shares by the functions that form them there; links and computing are what is
// modelled.
//
// The parts of one push travel together: it is one flow that crosses the link of each server as often as that server
// has a share of it, and so is the answer. Requests for samples cost latency and no bytes.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/simulate/fluid.h"
#include "plan/simulate/levels.h"
#include "plan/simulate/policy.h"
#include "plan/simulate/step.h"
#include "ranvier/error.h"
#include "ranvier/server.h"

namespace ranvier::plan {
namespace {

constexpr Rank most_workers = 256;
// Of a replica in a step of everybody's: as many as shares by speed are told apart by.
constexpr std::uint64_t batch = 1024;
constexpr std::uint64_t worker_steps = 20'000;
constexpr std::uint64_t least_steps = 100;
// As training measures speeds before it forms groups: batches, of which the first ones do not count (pace.h).
constexpr std::size_t batches_to_measure = 10;
constexpr std::size_t batches_of_warm_up = 3;

std::size_t index(Rank rank) { return static_cast<std::size_t>(rank); }

// What each server owns of all parameters, by rank: ranges are dealt out in turn (ServerRule::ranges).
std::vector<double> owned_shares(const ServerRule& rule, Rank world) {
  const Rank first = rule.servers > 0 ? workers_of(rule, world) : 0;
  const auto owners = index(world - first);
  const std::size_t ranges = rule.ranges > 0 ? rule.ranges : owners;
  std::vector<double> shares(index(world), 0);
  for (std::size_t i = 0; i < std::min(ranges, owners); ++i)
    shares[index(first) + i] = static_cast<double>((ranges - i - 1) / owners + 1) / static_cast<double>(ranges);
  return shares;
}

class ServerRun {
 public:
  ServerRun(const SyncPolicy& policy, const Workload& workload, const StepSimulation& how, CollectiveTimes& times,
            const PolicySimulation& simulation)
      : topology_(times.topology()),
        rule_(policy.server().value()),
        workers_(workers_of(rule_, times.world())),
        alone_(simulate_step(without_averages(workload), how, times)),
        passes_ns_(passes_ns(alone_, workload)),
        bytes_(averaged_bytes(workload)),
        message_ns_(how.options.message_ns),
        steps_(steps_of(simulation)),
        gate_(workers_, rule_.bound, 0) {
    check(policy, workload, how);
    for (Rank worker = 0; worker < workers_; ++worker)
      slowness_.emplace_back(simulation.unequal, static_cast<std::uint64_t>(worker), simulation.seed);
    form_teams(policy);
    const std::string algorithm = how.by_size.empty() ? how.algorithm : how.by_size.back().algorithm;
    for (Team& team : teams_) time_inside(team, algorithm, times.options());
    network_.emplace(links(), routes());
  }

  PolicyPrediction run() {
    for (std::size_t team = 0; team < teams_.size(); ++team) ask(team);
    std::vector<std::uint32_t> left;
    while (network_->flows() || !events_.empty()) {
      const double event = events_.empty() ? std::numeric_limits<double>::infinity() : events_.top().at - now_;
      const double flow = network_->flows() ? network_->until_next() : std::numeric_limits<double>::infinity();
      const double passes = std::max(0.0, std::min(event, flow));
      left.clear();
      network_->advance(passes, left);
      now_ += passes;
      for (const std::uint32_t channel : left) arrive(channel);
      while (!events_.empty() && events_.top().at <= now_ * (1 + 1e-12)) {
        const Event each = events_.top();
        events_.pop();
        happen(each);
      }
    }
    return result();
  }

 private:
  // A worker, or those that average their gradients before one of them pushes.
  struct Team {
    std::vector<Rank> members = {};
    std::uint64_t samples = 0;  // of a step
    double average_ns = 0;      // of gradients inside it
    double tell_ns = 0;         // the others what the servers hold
    double push_latency_ns = 0;
    double answer_latency_ns = 0;
    std::vector<Crossing> push = {};
    std::vector<Crossing> answer = {};
    std::uint64_t given = 0;   // samples of the step under way
    std::uint64_t ended = 0;   // steps
    std::uint64_t pulled = 0;  // pushes of all when it pulled
    Rank leader() const { return members.front(); }
  };
  enum class What : std::uint8_t { asks, computed, pushed, answered };
  struct Event {
    double at;
    std::uint64_t order;  // of equal times the first made comes first
    What what;
    std::size_t team;
    bool operator>(const Event& other) const { return at != other.at ? at > other.at : order > other.order; }
  };

  void check(const SyncPolicy& policy, const Workload& workload, const StepSimulation& how) const {
    const auto refuse = [&](std::string_view reason) {
      throw Error(ErrorKind::usage, fmt::format("'{}' on {}: {}", policy.spec(), workload.name, reason));
    };
    const Degrees& degrees = workload.degrees;
    if (degrees.tensor > 1 || degrees.pipeline > 1 || degrees.expert > 1)
      refuse("parameter servers serve replicas of a whole model; leave out its degrees");
    if (alone_.communication_ns > 0)
      refuse(
          "its steps have collectives beside averages of gradients, for which workers at their own pace cannot meet; "
          "name a policy of steps of everybody's, such as bsp or local:16");
    if (how.gradient_scale != 1) refuse("workers push gradients as they are; leave out the codec");
    if (!how.options.slowdown.empty()) refuse("--straggler is of steps of everybody's; slow workers down by --speeds");
    if (workers_ > most_workers)
      refuse(fmt::format("messages to servers are simulated one by one, for up to {} workers; name a smaller world",
                         most_workers));
  }

  std::uint64_t steps_of(const PolicySimulation& simulation) const {
    if (simulation.steps > 0) return simulation.steps;
    return std::max(least_steps, worker_steps / static_cast<std::uint64_t>(workers_));
  }

  // Each alone, or by the speeds that training measures before it begins.
  void form_teams(const SyncPolicy& policy) {
    std::vector<std::uint64_t> shares(index(workers_), batch);
    groups_.assign(index(topology_.world), serves_only);
    std::iota(groups_.begin(), groups_.begin() + workers_, 0);
    if (const auto rule = policy.groups()) {
      std::vector<double> speeds;
      for (Slowness& each : slowness_) speeds.push_back(1 / median_slowness(each));
      const auto by_speed = share_by_speed(batch * index(workers_), speeds);
      std::ranges::copy(by_speed, shares.begin());
      std::ranges::copy(group_by_speed(speeds, *rule), groups_.begin());
    }
    shares_ = std::move(shares);
    std::map<int, std::size_t> known;
    for (Rank worker = 0; worker < workers_; ++worker) {
      const auto [found, added] = known.try_emplace(groups_[index(worker)], teams_.size());
      if (added) teams_.emplace_back();
      teams_[found->second].members.push_back(worker);
      teams_[found->second].samples += shares_[index(worker)];
    }
    const auto owned = owned_shares(rule_, topology_.world);
    for (Team& team : teams_) connect(team, owned);
  }

  static double median_slowness(Slowness& worker) {
    std::vector<double> times;
    for (std::size_t i = 0; i < batches_to_measure; ++i) times.push_back(worker.of(0));
    times.erase(times.begin(), times.begin() + batches_of_warm_up);
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::ranges::nth_element(times, middle);
    return *middle;
  }

  void connect(Team& team, const std::vector<double>& owned) const {
    std::map<LinkNumber, double> there, back;
    for (Rank server = 0; server < topology_.world; ++server) {
      const double share = owned[index(server)];
      if (server == team.leader() || share == 0) continue;
      for (const LinkNumber link : topology_.path(team.leader(), server)) there[link] += share;
      for (const LinkNumber link : topology_.path(server, team.leader())) back[link] += share;
      team.push_latency_ns = std::max(team.push_latency_ns, latency_ns(team.leader(), server));
      team.answer_latency_ns = std::max(team.answer_latency_ns, latency_ns(server, team.leader()));
    }
    for (const auto& [link, share] : there) team.push.push_back({link, share});
    for (const auto& [link, share] : back) team.answer.push_back({link, share});
  }

  double latency_ns(Rank from, Rank to) const {
    if (from == to) return 0;
    double ns = message_ns_;
    for (const LinkNumber link : topology_.path(from, to))
      ns += static_cast<double>(topology_.links[link].speed.latency.count());
    return ns;
  }

  void time_inside(Team& team, const std::string& algorithm, const SimulateOptions& options) const {
    if (team.members.size() < 2) return;
    const RankGroups one{team.members};
    const Schedule schedule = in_groups(Collective::all_reduce, topology_.world, one, algorithm);
    const auto chunk = static_cast<std::size_t>(std::max(1.0, bytes_ / sizeof(float) / schedule.chunks));
    team.average_ns = streamed(schedule, topology_, chunk, sizeof(float), options).ns;
    team.tell_ns = broadcast_ns(one, bytes_, topology_, options);
  }

  std::vector<FluidLink> links() const {
    std::vector<FluidLink> result;
    for (const Link& link : topology_.links)
      result.push_back({link.speed.bytes_per_second / 1e9, link.speed.burst_bytes});
    return result;
  }
  // By channel: of each team its push, then its answer.
  std::vector<std::vector<Crossing>> routes() const {
    std::vector<std::vector<Crossing>> result;
    for (const Team& team : teams_) {
      result.push_back(team.push);
      result.push_back(team.answer);
    }
    return result;
  }

  void at(double ns, What what, std::size_t team) { events_.push({now_ + ns, order_++, what, team}); }

  void ask(std::size_t team) { at(latency_ns(teams_[team].leader(), 0), What::asks, team); }

  void happen(const Event& event) {
    Team& team = teams_[event.team];
    switch (event.what) {
      case What::asks:
        gate_.asks(team.leader(), steps_ * all_samples(), team.samples);
        return decide();
      case What::computed:
        return send(event.team, 0);
      case What::pushed:
        overtaken_ += pushes_ - team.pulled;
        team.pulled = ++pushes_;
        ++team.ended;
        gate_.ended_step(team.leader(), team.given);
        send(event.team, 1);
        return decide();
      case What::answered:
        return ask(event.team);
    }
  }

  // Whose wait has an end computes.
  void decide() {
    for (const auto& [leader, start] : gate_.decide()) {
      if (start.count == 0) continue;  // it has stopped
      const std::size_t number = team_of(leader);
      Team& team = teams_[number];
      team.given = start.count;
      note_lead(team);
      const double computing = compute_ns(team, start);
      at(latency_ns(0, leader) + computing + team.average_ns, What::computed, number);
    }
  }

  std::size_t team_of(Rank leader) const {
    return static_cast<std::size_t>(std::ranges::find(teams_, leader, &Team::leader) - teams_.begin());
  }

  void note_lead(const Team& team) {
    most_ahead_ = std::max(most_ahead_, team.ended - std::ranges::min_element(teams_, {}, &Team::ended)->ended);
  }

  // Of its slowest member. Of fewer samples than usual each takes as large a part as of the usual ones.
  double compute_ns(const Team& team, const SampleStart& start) {
    double slowest = 0;
    for (const Rank member : team.members) {
      const double part = static_cast<double>(start.count) * static_cast<double>(shares_[index(member)]) /
                          static_cast<double>(team.samples * batch);
      const double usual = alone_.step_ns - passes_ns_ + passes_ns_ * part;
      const double own = usual + passes_ns_ * part * (slowness_[index(member)].of(start.first / all_samples()) - 1);
      computing_ns_ += own;
      slowest = std::max(slowest, own);
    }
    return slowest;
  }

  // Its push (0) or the answer to it (1) leaves.
  void send(std::size_t team, std::uint32_t answer) {
    const auto channel = static_cast<std::uint32_t>(2 * team) + answer;
    const auto& route = answer == 0 ? teams_[team].push : teams_[team].answer;
    if (route.empty() || !(bytes_ > 0)) return arrive(channel);
    network_->start(channel, bytes_);
  }
  void arrive(std::uint32_t channel) {
    const std::size_t number = channel / 2;
    const Team& team = teams_[number];
    if (channel % 2 == 0)
      at(team.push_latency_ns, What::pushed, number);
    else
      at(team.answer_latency_ns + team.tell_ns, What::answered, number);
  }

  std::uint64_t all_samples() const { return batch * static_cast<std::uint64_t>(workers_); }

  PolicyPrediction result() {
    const auto count = static_cast<double>(steps_);
    PolicyPrediction prediction{.step_ns = now_ / count,
                                .exposed_communication_ns = (now_ - computing_ns_ / workers_) / count,
                                .rounds_per_step = static_cast<double>(pushes_) / count,
                                .steps = steps_,
                                .usual = std::move(alone_),
                                .averages_gradients = false};
    PolicyPrediction::Servers servers{.overtaken = static_cast<double>(overtaken_) / static_cast<double>(pushes_),
                                      .most_ahead = most_ahead_,
                                      .groups = std::move(groups_)};
    for (std::size_t link = 0; link < topology_.links.size(); ++link) {
      const Link& each = topology_.links[link];
      const double busy_ns = network_->carried()[link] / (each.speed.bytes_per_second / 1e9);
      if (busy_ns > 0)
        servers.links.push_back({.from = vertex_name(topology_, each.from),
                                 .to = vertex_name(topology_, each.to),
                                 .dimension = each.dimension,
                                 .utilisation = busy_ns / now_});
    }
    prediction.servers = std::move(servers);
    return prediction;
  }

  const Topology& topology_;
  const ServerRule rule_;
  const Rank workers_;  // the first ranks
  StepPrediction alone_;
  const double passes_ns_;
  const double bytes_;
  const double message_ns_;
  const std::uint64_t steps_;
  SampleGate gate_;
  std::vector<Slowness> slowness_;     // by worker
  std::vector<std::uint64_t> shares_;  // samples of a step, by worker
  std::vector<int> groups_;            // by rank
  std::vector<Team> teams_;
  std::optional<FluidNetwork> network_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  double now_ = 0;
  double computing_ns_ = 0;  // of all workers
  std::uint64_t pushes_ = 0;
  std::uint64_t overtaken_ = 0;
  std::uint64_t most_ahead_ = 0;
};

}  // namespace

PolicyPrediction simulate_servers(const SyncPolicy& policy, const Workload& workload, const StepSimulation& how,
                                  CollectiveTimes& times, const PolicySimulation& simulation) {
  return ServerRun(policy, workload, how, times, simulation).run();
}

}  // namespace ranvier::plan
