#include "ranvier/synchronizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>

#include "base/parts.h"
#include "ranvier/error.h"
#include "replica/coded_message.h"
#include "replica/coded_pair.h"
#include "replica/fragments.h"
#include "replica/gossip.h"
#include "replica/parameter_average.h"
#include "replica/sample_counts.h"

namespace ranvier {
namespace {

using replica::Groups;
using replica::ParameterAverage;
using replica::SampleCounts;
using replica::Team;
using replica::TeamPool;
using replica::Teams;

std::vector<double> everybodys(Communicator& comm, double mine) {
  const std::array<double, 1> own{mine};
  std::vector<double> all(static_cast<std::size_t>(comm.world()));
  comm.all_gather(own, all);
  return all;
}

Groups hosts_of(Communicator& comm) {
  const std::array<std::int64_t, 1> own{static_cast<std::int64_t>(host_number(comm.options().node))};
  std::vector<std::int64_t> all(static_cast<std::size_t>(comm.world()));
  comm.all_gather(own, all);
  return replica::by_host(std::vector<std::uint64_t>(all.begin(), all.end()));
}

std::unique_ptr<SyncPolicy> make_policy(const Communicator& comm, const SynchronizerOptions& options) {
  SyncContext run = options.run;
  run.world = static_cast<std::uint64_t>(comm.world());
  return make_sync_policy(options.sync, run);
}

Teams make_teams(Communicator& comm, const SyncPolicy& policy, const SynchronizerOptions& options) {
  const auto places = replica::parse_places(options.place, comm.world());
  const Groups hosts = hosts_of(comm);
  const auto node = places.find("node");
  return {options.groups ? options.groups : std::make_shared<TeamPool>(comm),
          replica::arrange(policy.levels(), places, hosts), node == places.end() ? hosts : node->second};
}

// Those inside it average gradients in every step; after a synchronous beginning there are none.
std::size_t first_parameter_level(const SyncPolicy& policy) {
  const std::size_t by_gradients = policy.gradient_level();
  return by_gradients == policy.levels().size() ? 1 : by_gradients + 1;
}

}  // namespace

void check_samples(const SyncPolicy& policy, std::span<const double> by_rank) {
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    if (!(by_rank[rank] > 0) || !std::isfinite(by_rank[rank]))
      throw Error(ErrorKind::usage, fmt::format("rank {} has {} samples in a step, which is no weight in an average; "
                                                "give a finite number above 0",
                                                rank, by_rank[rank]));
    if (!policy.weighs_samples() && by_rank[rank] != by_rank[0])
      throw Error(ErrorKind::usage,
                  fmt::format("'{}' does not weigh workers by their samples, and rank {} has {} of them in a step "
                              "where rank 0 has {}; give all as many, or take a policy that averages everybody's",
                              policy.spec(), rank, by_rank[rank], by_rank[0]));
  }
}

void check_compress(const SyncPolicy& policy, std::string_view compress) {
  const double momentum = plan_exchange(compress).momentum();
  if (compress != "none" && policy.server()) replica::codec_of_messages(compress);
  if (policy.pushes() || policy.meets_peers()) replica::check_codec_of_pairs(compress);
  if (momentum > 0 && policy.averages_parameters())
    throw Error(ErrorKind::usage, fmt::format("--compress {} corrects the momentum of gradients, and --sync {} also "
                                              "averages parameters; take another codec, or --sync bsp",
                                              compress, policy.spec()));
}

class Synchronizer::Impl {
 public:
  Impl(Communicator& comm, const SynchronizerOptions& options)
      : comm_(comm),
        compress_(options.compress),
        policy_(make_policy(comm, options)),
        teams_(make_teams(comm, *policy_, options)),
        samples_(checked_samples(options.samples)),
        used_(samples_.size(), policy_->levels().size() + 1 + policy_->fragments()) {
    check_compress(*policy_, compress_);
    const std::size_t by_gradients = policy_->gradient_level();
    if (by_gradients > 0) {
      gradient_team_ = teams_.whole(by_gradients);
      // Inside a node or a rack a codec costs more than it saves.
      const bool is_everybody = by_gradients == policy_->levels().size();
      const std::string_view spec = is_everybody ? std::string_view(compress_) : "none";
      Communicator& team = gradient_team_->comm();
      if (spec == "none" && team.tolerated_loss() > 0) {
        // An average of parameters that replicas make anyway would have to be of equal groups.
        if (is_everybody && !policy_->averages_parameters()) resync_ = team.resync();
        gradients_ = lossy_exchange(team, resync_ > 0 ? RanksEnd::apart : RanksEnd::alike);
      } else {
        gradients_ = is_everybody ? teams_.exchange_of_everybody(compress_) : make_exchange(spec, team);
      }
    }
  }

  // The first time with all that averages of parameters take.
  void begin(std::span<const float> parameters, const std::vector<Tensor>& tensors) {
    if (policy_->fragments() > 0) {
      if (!fragments_)
        fragments_ = std::make_unique<replica::Fragments>(*teams_.leaders(1), teams_.exchange_of_everybody(compress_),
                                                          tensors, parameters.size(), policy_->fragments());
    } else if (averages_.empty() && policy_->averages_parameters()) {
      const std::size_t last = policy_->levels().size();
      if (policy_->pushes()) gossip_ = std::make_unique<replica::Gossip>(comm_, compress_);
      // Of those that meet peer by peer these only close training.
      const std::string compress = gossip_ || policy_->meets_peers() ? "none" : compress_;
      for (std::size_t level = first_parameter_level(); level <= last; ++level) {
        Team* const leaders = teams_.leaders(level);
        // The last level is what a codec is for, be it inside a node, too.
        const bool stays_inside = level < last && leaders != nullptr && !leaders->spans(teams_.nodes());
        averages_.push_back(std::make_unique<ParameterAverage>(
            leaders, teams_.whole(level - 1),
            ParameterAverage::Options{.compress = stays_inside ? "none" : compress,
                                      .tensors = tensors,
                                      .wants_change = level == last && policy_->averages_changes(),
                                      .outer = level == last && policy_->has_outer_step(),
                                      .under_way = level == last && policy_->delays_averages(),
                                      .count = parameters.size()},
            level == last && last == 1 ? teams_.exchange_of_everybody(compress) : nullptr));
      }
    }
    agree(policy_->levels().size(), parameters);
  }

  bool begin_step(std::uint64_t complete) {
    if (policy_->goes_at_own_pace())
      throw Error(ErrorKind::usage,
                  fmt::format("with '{}' workers take steps at a pace of their own, which a Synchronizer cannot give "
                              "them; take {}",
                              policy_->spec(), policy_->server() ? "a ParameterServer" : "a PeerAverage"));
    const auto asked = policy_->react({.point = SyncPoint::step_begins, .step = complete});
    by_gradients_ = asked.empty() ? 0 : asked.front().level;
    if (by_gradients_ > 0 && teams_.sum(by_gradients_, samples_) == 0) by_gradients_ = 0;
    if (by_gradients_ > 0) count_round(*gradient_team_);
    return by_gradients_ > 0;
  }

  void end_step(std::uint64_t complete, double learning_rate, std::span<float> parameters) {
    used_.add(samples_);
    for (std::size_t level = 0; level <= by_gradients_; ++level) used_.made(level);  // one step leaves nobody ahead
    agreed_ = by_gradients_ == policy_->levels().size() && (resync_ == 0 || complete % resync_ == 0);
    if (agreed_ && resync_ > 0) realign(parameters);
    if (agreed_) agree(by_gradients_, parameters);
    const SyncEvent event{.point = SyncPoint::step_ended, .step = complete, .learning_rate = learning_rate};
    const double spread = carry_out(policy_->react(event), parameters);
    if (agreed_)
      policy_->react(
          {.point = SyncPoint::averaged, .step = complete, .learning_rate = learning_rate, .spread = spread});
  }

  bool end(std::span<float> parameters) {
    const auto asked = policy_->react({.point = SyncPoint::ended});
    carry_out(asked, parameters, Closes::yes);
    const bool were_apart = resync_ > 0 && !agreed_;
    if (were_apart) realign(parameters);
    agreed_ = true;
    return !asked.empty() || were_apart;
  }

  void wait() {
    for (const auto& average : averages_) average->wait();
    if (fragments_) fragments_->wait();
  }

  void mean(std::span<float> parameters) {
    if (agreed_ || comm_.world() == 1) return;
    const auto weigh = [](std::span<float> values, double weight) {
      if (weight != 1)
        for (float& each : values) each *= static_cast<float>(weight);
    };
    if (fragments_)
      for (std::size_t fragment = 0; fragment < policy_->fragments(); ++fragment)
        weigh(fragments_->of(fragment, parameters), own_weight(average_of(fragment)));
    else if (resync_ == 0)  // replicas that gradients part have all taken steps of everybody's samples, see realign()
      weigh(parameters, own_weight(policy_->levels().size()));
    comm_.all_reduce(parameters, {.op = ReduceOp::average});
  }

  std::vector<std::byte> save() {
    std::vector<std::byte> all;
    append_part(all, std::as_bytes(std::span<const double>(policy_->save())));
    const std::array<std::byte, 1> agreed{std::byte{agreed_}};
    append_part(all, agreed);
    used_.save(all);
    for (const auto& average : averages_) average->save(all);
    if (fragments_) fragments_->save(all);
    if (gossip_) gossip_->save(all);
    return all;
  }
  void restore(ConstBytes kept) {
    std::vector<double> numbers(policy_->save().size());
    take_values(kept, std::span(numbers));
    policy_->restore(numbers);
    std::array<std::byte, 1> agreed{};
    take_values(kept, std::span<std::byte>(agreed));
    agreed_ = agreed[0] != std::byte{0};
    used_.restore(kept);
    for (const auto& average : averages_) average->restore(kept);
    if (fragments_) fragments_->restore(kept);
    if (gossip_ && !kept.empty()) gossip_->restore(kept);
  }

  SyncTraffic traffic() const {
    const auto [inside, between] = teams_.pool().bytes(teams_.nodes());
    return {.rounds_inside = rounds_[0],
            .rounds_between = rounds_[1],
            .bytes_inside = inside,
            .bytes_between = between,
            .losses = teams_.pool().losses()};
  }

  void set_samples(double samples) { samples_ = checked_samples(samples); }
  void set_samples(std::span<const double> by_rank) {
    if (by_rank.size() != samples_.size() ||
        std::ranges::any_of(by_rank, [](double each) { return !(each >= 0) || !std::isfinite(each); }) ||
        std::ranges::all_of(by_rank, [](double each) { return each == 0; }))
      throw Error(ErrorKind::usage, fmt::format("the samples of {} ranks are given to {}, or are no weights; give each "
                                                "a finite number from 0, and not 0 to all",
                                                by_rank.size(), samples_.size()));
    if (!policy_->weighs_samples()) check_samples(*policy_, by_rank);
    samples_.assign(by_rank.begin(), by_rank.end());
  }

  double gradient_weight() const {
    const std::size_t level = policy_->gradient_level();
    if (level == 0) return 1;
    return samples_[own()] * static_cast<double>(gradient_team_->size()) / teams_.sum(level, samples_);
  }

  Communicator& comm_;
  const std::string compress_;
  const std::unique_ptr<SyncPolicy> policy_;
  Teams teams_;
  std::vector<double> samples_;  // by rank, of a step
  SampleCounts used_;            // by level, and behind those by fragment
  Team* gradient_team_ = nullptr;
  std::unique_ptr<Exchange> gradients_;
  std::uint64_t resync_ = 0;  // steps after which replicas that gradients part are realigned; 0: they do not
  std::vector<std::unique_ptr<ParameterAverage>> averages_;  // of levels first_parameter_level() …
  std::unique_ptr<replica::Fragments> fragments_;            // of streaming policies, instead
  std::unique_ptr<replica::Gossip> gossip_;                  // of policies that push
  bool agreed_ = true;

 private:
  // Of ranks that only serve there may be none.
  std::vector<double> checked_samples(double mine) {
    auto all = everybodys(comm_, mine);
    if (!policy_->server()) check_samples(*policy_, all);
    return all;
  }

  std::size_t first_parameter_level() const { return ranvier::first_parameter_level(*policy_); }

  std::size_t own() const { return static_cast<std::size_t>(comm_.rank()); }
  std::size_t average_of(std::size_t fragment) const { return policy_->levels().size() + 1 + fragment; }
  // In an average of everybody: 1 where all have used as many samples since the last one of it, or none.
  double own_weight(std::size_t average) const {
    const auto used = used_.since(average);
    const double all = std::accumulate(used.begin(), used.end(), 0.0);
    return all > 0 ? used[own()] * static_cast<double>(comm_.world()) / all : 1;
  }

  void count_round(const Team& team) {
    if (team.size() > 1) ++rounds_[team.spans(teams_.nodes()) ? 1 : 0];
  }

  // Groups of `level` and of all inside it hold the same parameters now.
  void agree(std::size_t level, std::span<const float> parameters) {
    for (std::size_t i = 0; i < averages_.size() && first_parameter_level() + i <= level; ++i)
      averages_[i]->agree_on(parameters);
    if (fragments_) fragments_->agree_on(parameters);
    if (gossip_) gossip_->agree_on(parameters);
    if (level == policy_->levels().size()) agreed_ = true;
  }

  // What closes training leaves the codec out: mean() has foretold it.
  enum class Closes : std::uint8_t { no, yes };
  double carry_out(const std::vector<SyncAction>& asked, std::span<float> parameters, Closes closes = Closes::no) {
    double spread = 0;
    for (const SyncAction& each : asked) {
      if (each.what == SyncAction::What::push) {
        push(each.hops, parameters);
        continue;
      }
      if (each.what == SyncAction::What::begin_fragment) {
        const double weight = own_weight(average_of(each.fragment));
        if (closes == Closes::yes)
          fragments_->begin_plainly(each.fragment, parameters, weight);
        else
          fragments_->begin(each.fragment, parameters, weight);
        used_.begun(average_of(each.fragment));
        count_round(*teams_.leaders(1));
        continue;
      }
      if (each.what == SyncAction::What::finish_fragment) {
        fragments_->finish(each.fragment, each.outer, each.merge, parameters);
        // Without a merge replicas are equal then; one under way as training closes is dropped, as if it had never
        // begun.
        if (each.merge == 0)
          used_.made(average_of(each.fragment));
        else if (closes == Closes::no)
          used_.taken_up(average_of(each.fragment));
        continue;
      }
      Team* const leaders = teams_.leaders(each.level);
      Team* const inside = teams_.whole(each.inside);
      if (each.what == SyncAction::What::finish_average) {
        used_.taken_up(each.level);
        const bool moved = averages_[each.level - first_parameter_level()]->finish(parameters);
        if (moved && inside != nullptr) count_round(*inside);
        continue;
      }
      const bool begins = each.what == SyncAction::What::begin_average;
      const auto used = used_.since(each.level);
      if (begins)
        used_.begun(each.level);
      else
        used_.made(each.level);
      const double of_level = teams_.sum(each.level, used);
      // Nobody has come from where they all are, or all of this group agree already.
      if (of_level == 0 || (teams_.parts(each.level) == 1 && each.outer.is_plain())) {
        agree(each.level, parameters);
        continue;
      }
      // A leader speaks for its inner group, of all that the groups of this level hold.
      const double weight = teams_.sum(each.inside, used) * static_cast<double>(teams_.parts(each.level)) / of_level;
      ParameterAverage& average = *averages_[each.level - first_parameter_level()];
      if (begins) {
        average.begin(parameters, weight);
        if (leaders != nullptr) count_round(*leaders);
        continue;
      }
      if (closes == Closes::yes)
        average.close(parameters, weight);
      else
        spread = average.run(parameters, each.outer, weight);
      if (leaders != nullptr) count_round(*leaders);
      if (inside != nullptr) count_round(*inside);
      agree(each.level, parameters);
    }
    return spread;
  }

  void realign(std::span<float> parameters) {
    gradient_team_->comm().realign(parameters);
    count_round(*gradient_team_);
  }

  void push(std::size_t hops, std::span<float> parameters) {
    gossip_->push(hops, parameters);
    const Groups& nodes = teams_.nodes();
    ++rounds_[nodes[own()] == nodes[(own() + hops) % nodes.size()] ? 0 : 1];
  }

  std::size_t by_gradients_ = 0;
  std::array<std::uint64_t, 2> rounds_{0, 0};  // inside nodes, and between them
};

void Synchronizer::prepare(Communicator& comm, const SynchronizerOptions& options) {
  const auto policy = make_policy(comm, options);
  const Teams teams = make_teams(comm, *policy, options);
  std::vector<Groups> all = teams.colors_of_everybody(options.compress);
  const auto add = [&](Teams::Part part, std::size_t level) {
    if (auto colors = teams.colors(part, level)) all.push_back(std::move(*colors));
  };
  // The last of those that average gradients are inside the first that averages parameters, or everybody.
  if (policy->averages_parameters())
    for (std::size_t level = first_parameter_level(*policy); level <= policy->levels().size(); ++level) {
      add(Teams::Part::leaders, level);
      add(Teams::Part::whole, level - 1);
    }
  teams.pool().prepare(all);
}

Synchronizer::Synchronizer(Communicator& comm, const SynchronizerOptions& options)
    : impl_(std::make_unique<Impl>(comm, options)) {}
Synchronizer::~Synchronizer() = default;

const SyncPolicy& Synchronizer::policy() const { return *impl_->policy_; }
Exchange* Synchronizer::gradients() { return impl_->gradients_.get(); }
double Synchronizer::gradient_weight() const { return impl_->gradient_weight(); }
void Synchronizer::set_samples(double samples) { impl_->set_samples(samples); }
void Synchronizer::set_samples(std::span<const double> by_rank) { impl_->set_samples(by_rank); }
void Synchronizer::begin(std::span<const float> parameters, const std::vector<Tensor>& tensors) {
  impl_->begin(parameters, tensors);
}
void Synchronizer::wait() { impl_->wait(); }
void Synchronizer::mean(std::span<float> parameters) { impl_->mean(parameters); }
bool Synchronizer::begin_step(std::uint64_t complete) { return impl_->begin_step(complete); }
void Synchronizer::end_step(std::uint64_t complete, double learning_rate, std::span<float> parameters) {
  impl_->end_step(complete, learning_rate, parameters);
}
bool Synchronizer::end(std::span<float> parameters) { return impl_->end(parameters); }
std::size_t Synchronizer::nodes() const {
  const auto& nodes = impl_->teams_.nodes();
  return std::set<int>(nodes.begin(), nodes.end()).size();
}
const std::vector<int>& Synchronizer::node_of_rank() const { return impl_->teams_.nodes(); }
bool Synchronizer::gradients_stay_in_memory() const {
  return impl_->gradient_team_ != nullptr && impl_->gradient_team_->comm().transport_name() == "shm";
}
bool Synchronizer::agreed() const { return impl_->agreed_; }
bool Synchronizer::parts_replicas() const { return impl_->policy_->averages_parameters() || impl_->resync_ > 0; }
SyncTraffic Synchronizer::traffic() const { return impl_->traffic(); }
std::uint64_t Synchronizer::plain_buckets() const {
  std::uint64_t sum = impl_->gradients_ ? impl_->gradients_->plain_buckets() : 0;
  for (const auto& average : impl_->averages_) sum += average->plain_buckets();
  if (impl_->fragments_) sum += impl_->fragments_->plain_buckets();
  if (impl_->gossip_) sum += impl_->gossip_->plain_messages();
  return sum;
}
std::size_t Synchronizer::state_bytes() const {
  std::size_t sum = impl_->gradients_ ? impl_->gradients_->state_bytes() : 0;
  for (const auto& average : impl_->averages_) sum += average->state_bytes();
  if (impl_->fragments_) sum += impl_->fragments_->state_bytes();
  if (impl_->gossip_) sum += impl_->gossip_->state_bytes();
  return sum;
}
std::vector<std::byte> Synchronizer::save() { return impl_->save(); }
void Synchronizer::restore(ConstBytes kept) { impl_->restore(kept); }

}  // namespace ranvier
