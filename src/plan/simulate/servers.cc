// Workers at their own pace over parameter servers, as src/replica/parameter_server.cc and async_group.cc have them: a
// worker asks rank 0 for samples, computes, pushes to every server its part of the gradient, and goes on from what they
// answer. A server takes one request at a time, in the order in which they reach it: it receives a push, applies it,
// sends what it holds then, and only then looks at the next one. Who may begin when is decided by the gate that decides
// it in training (SampleGate), groups and shares by the functions that form them there; links and computing are what is
// modelled. Requests for samples have no bytes.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
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

constexpr Rank most_workers = 128;
// Of a replica in a step of everybody's: as many as shares by speed are told apart by.
constexpr std::uint64_t batch = 1024;
// Where nobody says how many steps: of all workers to all servers so many pushes, a second or two.
constexpr std::uint64_t usual_pushes = 200'000;
constexpr std::uint64_t least_steps = 20;
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
  for (std::size_t i = 0; i < std::min(ranges, owners); ++i) {
    const std::size_t owned = (ranges - i - 1) / owners + 1;
    shares[index(first) + i] = static_cast<double>(owned) / static_cast<double>(ranges);
  }
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
        bytes_(averaged_bytes(workload) * how.gradient_scale),
        codec_ns_(bytes_ * how.codec_ns_per_byte),
        message_ns_(how.options.message_ns),
        gate_(workers_, rule_.bound, 0) {
    check(policy, workload, how);
    for (Rank worker = 0; worker < workers_; ++worker)
      slowness_.emplace_back(simulation.unequal, static_cast<std::uint64_t>(worker), simulation.seed);
    form_teams(policy);
    const std::string algorithm = how.by_size.empty() ? how.algorithm : how.by_size.back().algorithm;
    for (Team& team : teams_) time_inside(team, algorithm, times.options());
    // Rank 0, which gives samples out, hears of each push.
    const auto owned = owned_shares(rule_, topology_.world);
    for (Rank rank = 0; rank < topology_.world; ++rank)
      if (rank == 0 || owned[index(rank)] > 0) servers_.push_back({.rank = rank, .bytes = owned[index(rank)] * bytes_});
    for (Team& team : teams_) team.pulled.assign(servers_.size(), 0);
    network_.emplace(links(), routes());
    const std::uint64_t pushes = teams_.size() * servers_.size();
    steps_ =
        simulation.steps > 0 ? simulation.steps : std::clamp(usual_pushes / pushes, least_steps, steps_of_a_policy);
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
    std::uint64_t samples = 0;               // of a step
    double average_ns = 0;                   // of gradients inside it
    double tell_ns = 0;                      // the others what the servers hold
    std::uint64_t given = 0;                 // samples of the step under way
    std::uint64_t ended = 0;                 // steps
    std::size_t unanswered = 0;              // pushes of the step under way
    std::vector<std::uint64_t> pulled = {};  // by server: pushes of all when it answered
    Rank leader() const { return members.front(); }
  };
  struct Request {
    std::size_t team;
    bool is_push;  // else for samples
  };
  struct Server {
    Rank rank = 0;
    double bytes = 0;  // that it owns
    std::uint64_t pushes = 0;
    std::deque<Request> queue = {};
    bool is_busy = false;
    double since = 0;
    double busy_ns = 0;
  };
  enum class What : std::uint8_t { computed, pushed, answered, told, asked };
  struct Event {
    double at;
    std::uint64_t order;  // of equal times the first made comes first
    What what;
    std::size_t team;
    std::size_t server;
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
    if (!how.options.slowdown.empty()) refuse("--straggler is of steps of everybody's; slow workers down by --speeds");
    if (workers_ > most_workers)
      refuse(fmt::format("messages to servers are simulated one by one, for up to {} workers; name a smaller world",
                         most_workers));
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
  }

  static double median_slowness(Slowness& worker) {
    std::vector<double> times;
    for (std::size_t i = 0; i < batches_to_measure; ++i) times.push_back(worker.of(0));
    times.erase(times.begin(), times.begin() + batches_of_warm_up);
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::ranges::nth_element(times, middle);
    return *middle;
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
    team.average_ns = codec_ns_ + streamed(schedule, topology_, chunk, sizeof(float), options).ns;
    team.tell_ns = broadcast_ns(one, bytes_, topology_, options);
  }

  std::vector<FluidLink> links() const {
    std::vector<FluidLink> result;
    for (const Link& link : topology_.links)
      result.push_back({link.speed.bytes_per_second / 1e9, link.speed.burst_bytes});
    return result;
  }
  // By channel: of each team to each server its push, then the answer.
  std::vector<std::vector<Crossing>> routes() const {
    std::vector<std::vector<Crossing>> result;
    const auto add = [&](Rank from, Rank to) {
      result.emplace_back();
      for (const LinkNumber link : topology_.path(from, to)) result.back().push_back({link, 1});
    };
    for (const Team& team : teams_)
      for (const Server& server : servers_) {
        add(team.leader(), server.rank);
        add(server.rank, team.leader());
      }
    return result;
  }

  void at(double ns, What what, std::size_t team, std::size_t server = 0) {
    events_.push({now_ + ns, order_++, what, team, server});
  }

  // For samples: rank 0 itself, the others in the queue of its server.
  void ask(std::size_t number) {
    const Rank leader = teams_[number].leader();
    if (leader != 0) return at(latency_ns(leader, 0), What::asked, number);
    gate_.asks(0, steps_ * all_samples(), teams_[number].samples);
    decide();
  }

  void happen(const Event& event) {
    Team& team = teams_[event.team];
    switch (event.what) {
      case What::computed:
        return push(event.team);
      case What::asked:
        return enqueue(0, {event.team, false});
      case What::pushed:
        return enqueue(event.server, {event.team, true});
      case What::answered:
        if (--team.unanswered > 0) return;
        return go_on(event.team);
      case What::told:
        return ask(event.team);
    }
  }

  // To all servers; what its leader serves itself it applies there and then.
  void push(std::size_t number) {
    Team& team = teams_[number];
    for (std::size_t server = 0; server < servers_.size(); ++server) {
      const Rank rank = servers_[server].rank;
      if (rank == team.leader()) {
        apply(number, server);
        continue;
      }
      ++team.unanswered;
      at(latency_ns(team.leader(), rank), What::pushed, number, server);
    }
    if (team.unanswered == 0) go_on(number);
  }

  // It has all answers, and tells its members.
  void go_on(std::size_t number) {
    if (teams_[number].leader() == 0) decide();
    at(codec_ns_ + teams_[number].tell_ns, What::told, number);
  }

  void enqueue(std::size_t server, Request request) {
    servers_[server].queue.push_back(request);
    if (!servers_[server].is_busy) serve(server);
  }

  // Requests until one takes time.
  void serve(std::size_t number) {
    Server& server = servers_[number];
    while (!server.is_busy && !server.queue.empty()) {
      const Request request = server.queue.front();
      server.queue.pop_front();
      const Team& team = teams_[request.team];
      if (!request.is_push) {
        gate_.asks(team.leader(), steps_ * all_samples(), team.samples);
        decide();
        continue;
      }
      server.is_busy = true;
      server.since = now_;
      send(request.team, number, 0);
    }
  }

  // A push (0) or the answer to it (1).
  void send(std::size_t team, std::size_t server, std::size_t answer) {
    const std::size_t channel = 2 * (team * servers_.size() + server) + answer;
    if (servers_[server].bytes > 0)
      network_->start(static_cast<std::uint32_t>(channel), servers_[server].bytes);
    else
      arrive(channel);
  }

  void arrive(std::size_t channel) {
    const std::size_t number = channel / 2 % servers_.size();
    const std::size_t team = channel / 2 / servers_.size();
    if (channel % 2 == 0) {
      apply(team, number);
      return send(team, number, 1);
    }
    Server& server = servers_[number];
    server.is_busy = false;
    server.busy_ns += now_ - server.since;
    at(latency_ns(server.rank, teams_[team].leader()), What::answered, team);
    if (server.rank == 0) decide();
    serve(number);
  }

  void apply(std::size_t number, std::size_t at_server) {
    Team& team = teams_[number];
    Server& server = servers_[at_server];
    overtaken_ += server.pushes - team.pulled[at_server];
    team.pulled[at_server] = ++server.pushes;
    if (server.rank != 0) return;
    ++team.ended;
    gate_.ended_step(team.leader(), team.given);
  }

  // Whose wait has an end computes.
  void decide() {
    for (const auto& [leader, start] : gate_.decide()) {
      if (start.count == 0) continue;  // it has stopped
      const std::size_t number = team_of(leader);
      Team& team = teams_[number];
      team.given = start.count;
      note_lead(team);
      at(latency_ns(0, leader) + compute_ns(team, start) + team.average_ns, What::computed, number);
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

  std::uint64_t all_samples() const { return batch * static_cast<std::uint64_t>(workers_); }

  PolicyPrediction result() {
    const auto count = static_cast<double>(steps_);
    std::uint64_t ended = 0;
    for (const Team& team : teams_) ended += team.ended;
    const Server& busiest = *std::ranges::max_element(servers_, {}, &Server::busy_ns);
    PolicyPrediction prediction{.step_ns = now_ / count,
                                .exposed_communication_ns = (now_ - computing_ns_ / workers_) / count,
                                .rounds_per_step = static_cast<double>(ended) / count,
                                .steps = steps_,
                                .usual = std::move(alone_),
                                .averages_gradients = false};
    PolicyPrediction::Servers servers{
        .overtaken = static_cast<double>(overtaken_) / static_cast<double>(ended * servers_.size()),
        .most_ahead = most_ahead_,
        .busiest = busiest.rank,
        .busy = now_ > 0 ? busiest.busy_ns / now_ : 0,
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
  const double bytes_;     // of all parameters, on the wire
  const double codec_ns_;  // of a push and the answers to it, and of an average
  const double message_ns_;
  std::uint64_t steps_ = 0;
  SampleGate gate_;
  std::vector<Slowness> slowness_;     // by worker
  std::vector<std::uint64_t> shares_;  // samples of a step, by worker
  std::vector<int> groups_;            // by rank
  std::vector<Team> teams_;
  std::vector<Server> servers_;  // the first one rank 0's
  std::optional<FluidNetwork> network_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  double now_ = 0;
  double computing_ns_ = 0;  // of all workers
  std::uint64_t overtaken_ = 0;
  std::uint64_t most_ahead_ = 0;
};

}  // namespace

PolicyPrediction simulate_servers(const SyncPolicy& policy, const Workload& workload, const StepSimulation& how,
                                  CollectiveTimes& times, const PolicySimulation& simulation) {
  return ServerRun(policy, workload, how, times, simulation).run();
}

}  // namespace ranvier::plan
