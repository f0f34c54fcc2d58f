// Workers at their own pace over parameter servers, as src/replica/parameter_server.cc and async_group.cc have them: a
// worker asks rank 0 for samples, computes, pushes to every server its part of the gradient, and goes on from what they
// answer; groups go on while their push is under way (Answer::next_step). Each of a server's threads takes one request
// at a time, in the order in which they reach it: it receives a push, applies it, sends what the server holds then, and
// only then looks at the next one. Who may begin when is decided by the gate that decides it in training (SampleGate),
// groups and shares by the functions that form them there; links and computing are what is modelled. Requests for
// samples have no bytes.
#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "plan/simulate/levels.h"
#include "plan/simulate/own_pace.h"
#include "plan/simulate/policy.h"
#include "plan/simulate/step.h"
#include "ranvier/server.h"
#include "sync/serving.h"

namespace ranvier::plan {
namespace {

// As training measures speeds before it forms groups: batches, of which the first ones do not count (pace.h).
constexpr std::size_t batches_to_measure = 10;
constexpr std::size_t batches_of_warm_up = 3;

// What each server owns of all parameters, by rank: ranges are dealt out in turn (ServerRule::ranges).
std::vector<double> owned_shares(const ServerRule& rule, Rank world) {
  const Rank first = rule.servers > 0 ? workers_of(rule, world) : 0;
  const auto owners = index_of(world - first);
  const std::size_t ranges = rule.ranges > 0 ? rule.ranges : owners;
  std::vector<double> shares(index_of(world), 0);
  for (std::size_t i = 0; i < std::min(ranges, owners); ++i) {
    const std::size_t owned = (ranges - i - 1) / owners + 1;
    shares[index_of(first) + i] = static_cast<double>(owned) / static_cast<double>(ranges);
  }
  return shares;
}

class ServerRun final : OwnPace {
 public:
  ServerRun(const SyncPolicy& policy, const Workload& workload, const StepSimulation& how, CollectiveTimes& times,
            const PolicySimulation& simulation)
      : OwnPace(policy, workload, how, times, simulation, workers_of(policy.server().value(), times.world()),
                policy.server()->bound),
        rule_(policy.server().value()),
        codec_ns_(bytes_ * how.codec_ns_per_byte),
        goes_ahead_(policy.groups().has_value()) {
    form_teams(policy);
    const std::string algorithm = average_algorithm_for(how, bytes_);
    for (Team& team : teams_) time_inside(team, algorithm, times.options());
    // Rank 0, which gives samples out, hears of each push.
    const auto owned = owned_shares(rule_, topology_.world);
    for (Rank rank = 0; rank < topology_.world; ++rank)
      if (rank == 0 || owned[index_of(rank)] > 0)
        servers_.push_back({.rank = rank, .bytes = owned[index_of(rank)] * bytes_});
    for (Team& team : teams_) team.pulled.assign(servers_.size(), 0);
    connect(routes(), teams_.size() * servers_.size(), simulation.steps);
  }

  PolicyPrediction predict() {
    for (std::size_t team = 0; team < teams_.size(); ++team) ask(team);
    run();
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
    std::size_t unanswered = 0;              // pushes of a step
    bool has_pushed = false;
    bool has_computed = false;               // and its push before this step's has not been answered
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
    std::size_t busy = 0;  // threads
    double since = 0;      // when the first of them was
    double busy_ns = 0;
  };
  enum What : std::uint8_t { computed, pushed, answered, told, asked };
  // Each alone, or by the speeds that training measures before it begins.
  void form_teams(const SyncPolicy& policy) {
    std::vector<std::uint64_t> shares(index_of(workers_), batch);
    groups_.assign(index_of(topology_.world), serves_only);
    std::iota(groups_.begin(), groups_.begin() + workers_, 0);
    if (const auto rule = policy.groups()) {
      std::vector<double> speeds;
      for (Slowness& each : slowness_) speeds.push_back(1 / median_slowness(each));
      const auto by_speed = share_by_speed(batch * index_of(workers_), speeds);
      std::ranges::copy(by_speed, shares.begin());
      std::ranges::copy(group_by_speed(speeds, *rule), groups_.begin());
    }
    shares_ = std::move(shares);
    std::map<int, std::size_t> known;
    for (Rank worker = 0; worker < workers_; ++worker) {
      const auto [found, added] = known.try_emplace(groups_[index_of(worker)], teams_.size());
      if (added) teams_.emplace_back();
      teams_[found->second].members.push_back(worker);
      teams_[found->second].samples += shares_[index_of(worker)];
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

  void time_inside(Team& team, const std::string& algorithm, const SimulateOptions& options) const {
    if (team.members.size() < 2) return;
    const RankGroups one{team.members};
    const Schedule schedule = in_groups(Collective::all_reduce, topology_.world, one, algorithm);
    const auto chunk = static_cast<std::size_t>(std::max(1.0, bytes_ / sizeof(float) / schedule.chunks));
    team.average_ns = codec_ns_ + streamed(schedule, topology_, chunk, sizeof(float), options).ns;
    team.tell_ns = broadcast_ns(one, bytes_, topology_, options);
  }

  // By channel: of each team to each server its push, then the answer.
  std::vector<std::vector<Crossing>> routes() const {
    std::vector<std::vector<Crossing>> result;
    for (const Team& team : teams_)
      for (const Server& server : servers_) {
        result.push_back(route(team.leader(), server.rank));
        result.push_back(route(server.rank, team.leader()));
      }
    return result;
  }

  // For samples: rank 0 itself, the others in the queue of its server.
  void ask(std::size_t number) {
    const Rank leader = teams_[number].leader();
    if (leader != 0) return at(latency_ns(leader, 0), asked, number);
    gate_.asks(0, steps_ * all_samples(), teams_[number].samples);
    decide();
  }

  void happen(const Event& event) override {
    Team& team = teams_[event.who];
    switch (event.what) {
      case computed:
        if (!goes_ahead_) return push(event.who);
        team.has_computed = true;
        return push_next(event.who);
      case asked:
        return enqueue(0, {event.who, false});
      case pushed:
        return enqueue(event.whom, {event.who, true});
      case answered:
        if (--team.unanswered > 0) return;
        return goes_ahead_ ? push_next(event.who) : go_on(event.who);
      case told:
        if (!goes_ahead_) return ask(event.who);
        push(event.who);
        if (team.leader() == 0) decide();
        return ask(event.who);
    }
  }

  // Of a group that goes ahead: once what it pushed before has been answered, and its members know.
  void push_next(std::size_t number) {
    Team& team = teams_[number];
    if (team.unanswered > 0 || !team.has_computed) return;
    team.has_computed = false;
    at(team.has_pushed ? codec_ns_ + team.tell_ns : 0, told, number);
    team.has_pushed = true;
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
      at(latency_ns(team.leader(), rank), pushed, number, server);
    }
    if (team.unanswered == 0 && !goes_ahead_) go_on(number);
  }

  // It has all answers, and tells its members.
  void go_on(std::size_t number) {
    if (teams_[number].leader() == 0) decide();
    at(codec_ns_ + teams_[number].tell_ns, told, number);
  }

  void enqueue(std::size_t server, Request request) {
    servers_[server].queue.push_back(request);
    serve(server);
  }

  // Requests until all threads have one that takes time.
  void serve(std::size_t number) {
    Server& server = servers_[number];
    while (server.busy < threads() && !server.queue.empty()) {
      const Request request = server.queue.front();
      server.queue.pop_front();
      const Team& team = teams_[request.team];
      if (!request.is_push) {
        gate_.asks(team.leader(), steps_ * all_samples(), team.samples);
        decide();
        continue;
      }
      if (server.busy++ == 0) server.since = now_;
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

  void arrive(std::size_t channel) override {
    const std::size_t number = channel / 2 % servers_.size();
    const std::size_t team = channel / 2 / servers_.size();
    if (channel % 2 == 0) {
      apply(team, number);
      if (servers_[number].rank == 0) decide();
      return send(team, number, 1);
    }
    Server& server = servers_[number];
    if (--server.busy == 0) server.busy_ns += now_ - server.since;
    at(latency_ns(server.rank, teams_[team].leader()), answered, team);
    serve(number);
  }
  std::size_t threads() const { return std::min(sync::serving_threads, index_of(topology_.world - 1)); }

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
      at(latency_ns(0, leader) + compute_ns(team, start) + team.average_ns, computed, number);
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
      const double part = static_cast<double>(start.count) * static_cast<double>(shares_[index_of(member)]) /
                          static_cast<double>(team.samples * batch);
      slowest = std::max(slowest, OwnPace::compute_ns(member, part, start.first));
    }
    return slowest;
  }

  PolicyPrediction result() {
    std::uint64_t ended = 0;
    for (const Team& team : teams_) ended += team.ended;
    const Server& busiest = *std::ranges::max_element(servers_, {}, &Server::busy_ns);
    PolicyPrediction all = prediction(ended);
    all.servers = PolicyPrediction::Servers{
        .overtaken = static_cast<double>(overtaken_) / static_cast<double>(ended * servers_.size()),
        .most_ahead = most_ahead_,
        .busiest = busiest.rank,
        .busy = now_ > 0 ? busiest.busy_ns / now_ : 0,
        .links = used_links(),
        .groups = std::move(groups_)};
    return all;
  }

  const ServerRule rule_;
  const double codec_ns_;              // of a push and the answers to it, and of an average
  const bool goes_ahead_;              // see Answer
  std::vector<std::uint64_t> shares_;  // samples of a step, by worker
  std::vector<int> groups_;            // by rank
  std::vector<Team> teams_;
  std::vector<Server> servers_;  // the first one rank 0's
  std::uint64_t overtaken_ = 0;
  std::uint64_t most_ahead_ = 0;
};

}  // namespace

PolicyPrediction simulate_servers(const SyncPolicy& policy, const Workload& workload, const StepSimulation& how,
                                  CollectiveTimes& times, const PolicySimulation& simulation) {
  return ServerRun(policy, workload, how, times, simulation).predict();
}

}  // namespace ranvier::plan
