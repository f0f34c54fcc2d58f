#include "ranvier/own_pace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "ranvier/async_group.h"
#include "ranvier/error.h"
#include "ranvier/parameter_server.h"
#include "ranvier/peer_average.h"
#include "ranvier/worker_speeds.h"
#include "replica/coded_message.h"
#include "replica/coded_pair.h"
#include "replica/gather_paces.h"
#include "replica/requests.h"
#include "replica/team_pool.h"

namespace ranvier {
namespace {

using replica::longest_wait;

constexpr std::size_t steps_to_measure = 10;
constexpr auto no_end = std::numeric_limits<std::uint64_t>::max();

void check_samples(double samples) {
  if (!std::isfinite(samples) || samples <= 0)
    throw Error(ErrorKind::usage, fmt::format("a step has {} samples; give a finite number above 0", samples));
}

std::vector<double> gather(Communicator& comm, double own) {
  std::vector<double> everybodys(static_cast<std::size_t>(comm.world()));
  comm.all_gather(std::span(&own, 1), everybodys, {.timeout = longest_wait});
  return everybodys;
}

// Members of a group go on from one momentum (AsyncGroup), which no rank could have by another factor than the others.
double agreed_momentum(Communicator& comm, const SyncPolicy& policy, double own) {
  if (!policy.groups()) return own;
  const auto everybodys = gather(comm, own);
  const auto other = std::ranges::find_if(everybodys, [&](double each) { return each != everybodys.front(); });
  if (other != everybodys.end())
    throw Error(
        ErrorKind::mismatch,
        fmt::format("by '{}' ranks that share a group step alike, and the momentum of rank {}'s optimizer is {} "
                    "where rank 0's is {}; make the same optimizer on every rank",
                    policy.spec(), other - everybodys.begin(), *other, everybodys.front()),
        static_cast<Rank>(other - everybodys.begin()));
  return own;
}

double sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

// Samples need be no whole numbers; of these only the ratio counts.
std::vector<std::size_t> as_shares(const std::vector<double>& samples) {
  const double all = sum(samples);
  std::vector<std::size_t> shares;
  for (const double each : samples)
    shares.push_back(static_cast<std::size_t>(std::max(1.0, std::round(each / all * 0x1p32))));
  return shares;
}

std::vector<int> each_alone(Rank world) {
  std::vector<int> groups(static_cast<std::size_t>(world));
  std::iota(groups.begin(), groups.end(), 0);
  return groups;
}

}  // namespace

// What ranks do behind a step. A rank that is the only one has none: its steps are plain ones, bit by bit.
class OwnPace::Way {
 public:
  virtual ~Way() = default;
  virtual void step(const Step& step, std::span<const float> began, std::span<float> parameters) = 0;
  virtual void set_samples(double) {}
  // Waits for nobody: this rank takes no steps until it has met all others.
  virtual void rest() = 0;
  // All rest. Then all hold these.
  virtual void agree(std::span<float> parameters) = 0;
  // All hold the same; more steps come.
  virtual void go_on() {}
  virtual void leave() = 0;
  virtual std::vector<int> groups() const = 0;
  virtual std::vector<double> shares() const = 0;
  virtual std::uint64_t exchanges() const = 0;
  virtual std::uint64_t bytes_sent_to_groups() const { return 0; }
  virtual std::uint64_t plain_messages() const { return 0; }
  virtual std::vector<float> owed() { return {}; }
  virtual void owe(std::vector<float>) {}
};

namespace {

class ByServers final : public OwnPace::Way {
 public:
  ByServers(Communicator& comm, const SyncPolicy& policy, std::span<const float> parameters,
            const OwnPaceOptions& options)
      : comm_(comm),
        group_rule_(policy.groups()),
        is_bounded_(policy.server()->bound.has_value()),
        held_(parameters.begin(), parameters.end()),
        update_(held_.size()),
        groups_(each_alone(comm.world())),
        shares_(groups_.size(), 1 / static_cast<double>(groups_.size())),
        shares_of_samples_(groups_.size(), 1),
        momentum_(agreed_momentum(comm, policy, options.momentum)),
        velocity_(momentum_ > 0 ? held_.size() : 0),
        has_velocity_(options.has_velocity),
        samples_(options.samples),
        all_samples_(sum(gather(comm, samples_))),  // all are here then, whenever they take their first step
        pool_(std::make_shared<replica::TeamPool>(comm)),
        server_(comm, *policy.server(), parameters, 0, {.compress = options.compress, .tensors = options.tensors}) {
    make_group();
  }

  void step(const OwnPace::Step& step, std::span<const float> began, std::span<float> parameters) override {
    const auto& before = began.empty() ? std::span<const float>(held_) : began;
    for (std::size_t i = 0; i < update_.size(); ++i) update_[i] = before[i] - parameters[i];
    largest_ = std::max(largest_, step.samples);
    was_told_ = false;
    push(step.samples, step.rate, step.velocity);
    if (group_rule_ && step.seconds > 0) recent_.add(step.seconds / step.samples);
    if (group_rule_ && !looked_ && ++steps_ == steps_to_measure) form_first_groups();
    std::ranges::copy(held_, parameters.begin());
    wait_for_turn();
  }

  void set_samples(double samples) override {
    samples_ = samples;
    was_told_ = true;
  }

  void rest() override {
    if (group_rule_ && !looked_) form_first_groups();
    std::ranges::fill(update_, 0.0F);
    while (push(0, 0)) std::ranges::fill(update_, 0.0F);
    if (is_bounded_) server_.begin(no_end, 0);
  }
  void agree(std::span<float> parameters) override {
    samples_ = usual_samples();
    largest_ = 0;
    all_samples_ = sum(gather(comm_, samples_));
    server_.pull(held_);
    std::ranges::copy(held_, parameters.begin());
    wait_for_turn();
  }
  void go_on() override {
    if (!group_rule_) return;
    looked_ = form_groups();
    steps_ = 0;
  }
  void leave() override { server_.leave(); }
  std::uint64_t exchanges() const override { return exchanges_; }

  std::vector<int> groups() const override { return groups_; }
  std::vector<double> shares() const override { return shares_; }
  std::uint64_t bytes_sent_to_groups() const override {
    const std::vector<int> one_node(groups_.size(), 0);
    std::uint64_t bytes = pool_->bytes(one_node).first;
    for (Rank peer = 0; peer < comm_.world(); ++peer) bytes -= comm_.bytes_sent_to(peer);
    return bytes;
  }
  std::uint64_t plain_messages() const override { return server_.plain_messages() + group_->plain_buckets(); }
  std::vector<float> owed() override { return group_->owed(update_); }
  void owe(std::vector<float> owed) override { group_->owe(std::move(owed)); }

 private:
  // update_, of so many samples, with those of this rank's group. False where none of them has any.
  bool push(double samples, double rate, std::span<const float> velocity = {}) {
    using Knows = AsyncGroup::Knows;
    const bool knows = !velocity_.empty() && velocity.size() == velocity_.size();
    const auto all = group_->bring(samples, rate, knows ? Knows::velocity : Knows::nothing);
    if (all.samples <= 0) return false;
    // A rate of 0 leaves optimizers in place, and nothing to divide; what a codec owes is of the rates before.
    if (all.rate > 0) rate_ = all.rate;
    const AsyncGroup::Brought brought{.samples = all.samples, .rate = rate_};
    for (float& each : update_) each = static_cast<float>(each / rate_);
    // As if that had always been what it is. A group's is of all its members.
    if (exchanges_ == 0 && has_velocity_ && samples > 0 && is_alone())
      std::copy_n(update_.begin(), velocity_.size(), velocity_.begin());
    if (all.all_know) group_->set_velocity(velocity, samples / all.samples);
    group_->exchange(update_, samples, brought, std::min(1.0, all.samples / all_samples_), held_);
    ++exchanges_;
    return true;
  }

  bool is_alone() const { return std::ranges::count(groups_, groups_[static_cast<std::size_t>(comm_.rank())]) == 1; }

  // What ranks meet behind may be the short rest of an epoch, of which the next steps are not.
  double usual_samples() const { return was_told_ || largest_ == 0 ? samples_ : largest_; }

  void wait_for_turn() {
    if (is_bounded_) server_.begin(no_end, 1);
  }

  // By what each one's first steps have taken: once on every rank before all meet, behind as many steps or where it
  // rests. Members of a group begin alike.
  void form_first_groups() {
    looked_ = true;
    group_->settle();
    form_groups();
    server_.pull(held_);
    comm_.barrier();  // before anybody pushes
  }

  // At first, and whenever speeds have changed. Every rank calls, while none pushes. Whether any speed is known.
  bool form_groups() {
    const bool has_changed = speeds_.add(replica::gather_paces(comm_, recent_.report(), {.timeout = longest_wait}));
    const auto speeds = speeds_.speeds();
    if (!has_changed) return !speeds.empty();
    groups_ = group_by_speed(speeds, *group_rule_);
    const double all = sum(speeds);
    std::ranges::transform(speeds, shares_.begin(), [&](double each) { return each / all; });
    auto owed = group_->take_owed(update_);
    shares_of_samples_ = as_shares(gather(comm_, usual_samples()));
    make_group();
    group_->owe(std::move(owed));
    return true;
  }

  void make_group() {
    group_.emplace(comm_, server_, groups_, shares_of_samples_,
                   AsyncGroupOptions{.momentum = {momentum_, velocity_},
                                     .pool = pool_,
                                     .answer = group_rule_ ? Answer::next_step : Answer::now});
    pool_->keep_only(AsyncGroup::colors(groups_));
  }

  Communicator& comm_;
  const std::optional<GroupRule> group_rule_;
  const bool is_bounded_;
  std::vector<float> held_;  // what this rank's next step begins from
  std::vector<float> update_;
  std::vector<int> groups_;
  std::vector<double> shares_;
  std::vector<std::size_t> shares_of_samples_;  // of each rank, as of when groups were formed
  const double momentum_;                       // of the optimizer
  std::vector<float> velocity_;                 // what its group pushed last, before it looked ahead
  const bool has_velocity_;                     // which the optimizer came with
  double samples_;                              // of a step of this rank, as it was told or as of when all last met
  double largest_ = 0;                          // of its steps since then
  bool was_told_ = false;                       // and has taken no step since
  double all_samples_;                          // of everybody's, as of when they last met
  const std::shared_ptr<replica::TeamPool> pool_;
  std::optional<AsyncGroup> group_;  // outlives the server, whose answer may be under way into its memory
  ParameterServer server_;
  double rate_ = 1;  // of the last push whose rate was above 0
  std::uint64_t exchanges_ = 0;
  std::size_t steps_ = 0;
  bool looked_ = false;
  RecentSteps recent_;  // of this rank
  WorkerSpeeds speeds_;
};

class ByPeers final : public OwnPace::Way {
 public:
  ByPeers(Communicator& comm, std::span<const float> parameters, const std::string& compress)
      : comm_(all_here(comm)),
        held_(parameters.begin(), parameters.end()),
        peers_(comm, parameters, 0, seed, compress) {}

  // The step was computed at what this rank held before, and is taken from the mean.
  void step(const OwnPace::Step&, std::span<const float> began, std::span<float> parameters) override {
    const auto& before = began.empty() ? std::span<const float>(held_) : began;
    for (std::size_t i = 0; i < held_.size(); ++i) parameters[i] -= before[i];
    peers_.update(held_, 1, [&] {
      for (std::size_t i = 0; i < held_.size(); ++i) held_[i] += parameters[i];
    });
    peers_.start();
    peers_.read(held_);
    std::ranges::copy(held_, parameters.begin());
  }

  void rest() override {
    peers_.update(held_, 0, [] {});  // the average under way
  }
  void agree(std::span<float> parameters) override {
    peers_.read(held_);
    comm_.all_reduce(held_, {.op = ReduceOp::average});
    peers_.update(parameters, 0, [&] { std::ranges::copy(held_, parameters.begin()); });
  }
  void leave() override { peers_.leave(); }
  std::uint64_t exchanges() const override { return peers_.averages(); }

  std::uint64_t plain_messages() const override { return peers_.plain_messages(); }
  std::vector<int> groups() const override { return each_alone(comm_.world()); }
  std::vector<double> shares() const override {
    return std::vector<double>(static_cast<std::size_t>(comm_.world()), 1.0 / comm_.world());
  }

 private:
  static constexpr std::uint64_t seed = 1;
  static Communicator& all_here(Communicator& comm) {
    comm.barrier({.timeout = longest_wait});
    return comm;
  }

  Communicator& comm_;
  std::vector<float> held_;
  PeerAverage peers_;
};

}  // namespace

void OwnPace::check(const SyncPolicy& policy, std::string_view compress) {
  const auto server = policy.server();
  if (!policy.goes_at_own_pace())
    throw Error(ErrorKind::usage, fmt::format("the steps of '{}' are everybody's, and no rank's own", policy.spec()));
  if (server && server->servers > 0)
    throw Error(ErrorKind::usage, fmt::format("'{}' has ranks that only serve, and here every rank trains; leave out "
                                              "servers={}",
                                              policy.spec(), server->servers));
  if (policy.meets_peers())
    replica::check_codec_of_pairs(compress);
  else if (compress != "none")
    replica::codec_of_messages(compress);
}

OwnPace::OwnPace(Communicator& comm, const SyncPolicy& policy, std::span<const float> parameters,
                 const OwnPaceOptions& options)
    : comm_(comm), sent_before_(comm.traffic().bytes_sent) {
  check(policy, options.compress);
  check_samples(options.samples);
  if (comm.world() == 1) return;
  if (policy.meets_peers())
    way_ = std::make_unique<ByPeers>(comm, parameters, options.compress);
  else
    way_ = std::make_unique<ByServers>(comm, policy, parameters, options);
}
OwnPace::~OwnPace() = default;

void OwnPace::step(const Step& step, std::span<float> parameters, std::span<const float> began) {
  check_samples(step.samples);
  if (way_) way_->step(step, began, parameters);
}

void OwnPace::set_samples(double samples) {
  check_samples(samples);
  if (way_) way_->set_samples(samples);
}

void OwnPace::meet(std::span<float> parameters, Then then) {
  if (!way_) return;
  way_->rest();
  const auto everybodys = gather(comm_, then == Then::ends ? 1 : 0);
  for (std::size_t rank = 0; rank < everybodys.size(); ++rank)
    if (everybodys[rank] != everybodys[0])
      throw Error(
          ErrorKind::mismatch,
          fmt::format("{} ends its training where {} only meets the others and goes on; let all ranks do the same",
                      comm_.rank_name(everybodys[rank] > 0 ? static_cast<Rank>(rank) : 0),
                      comm_.rank_name(everybodys[rank] > 0 ? 0 : static_cast<Rank>(rank))));
  way_->agree(parameters);
  comm_.barrier();  // before anybody's next step changes what others still look at
  if (then == Then::ends)
    way_->leave();
  else
    way_->go_on();
}

std::vector<int> OwnPace::groups() const { return way_ ? way_->groups() : std::vector<int>{0}; }
std::vector<double> OwnPace::shares() const { return way_ ? way_->shares() : std::vector<double>{1}; }
std::uint64_t OwnPace::exchanges() const { return way_ ? way_->exchanges() : 0; }
std::uint64_t OwnPace::bytes_sent() const {
  return way_ ? comm_.traffic().bytes_sent - sent_before_ + way_->bytes_sent_to_groups() : 0;
}
std::uint64_t OwnPace::plain_messages() const { return way_ ? way_->plain_messages() : 0; }
std::vector<float> OwnPace::owed() const { return way_ ? way_->owed() : std::vector<float>{}; }
void OwnPace::owe(std::vector<float> owed) {
  if (way_) way_->owe(std::move(owed));
}

}  // namespace ranvier
