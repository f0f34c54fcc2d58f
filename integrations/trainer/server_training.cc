#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "integrations/trainer/own_pace.h"
#include "ranvier/async_group.h"
#include "ranvier/parameter_guests.h"

namespace ranvier::trainer {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

constexpr std::size_t batches_to_measure = 10;

// By rank; those behind the workers only serve.
std::vector<int> groups_by(const std::vector<double>& speeds, const GroupRule& rule, std::size_t world) {
  auto groups = group_by_speed(speeds, rule);
  groups.resize(world, serves_only);
  return groups;
}

class ServerTraining final : public OwnPaceTraining {
 public:
  ServerTraining(Communicator& comm, const SyncPolicy& policy, OwnPaceWorker worker, const OwnPaceStart& start)
      : comm_(comm),
        rule_(policy.server().value()),
        group_rule_(policy.groups()),
        worker_(std::move(worker)),
        start_(start),
        speeds_(start.speeds),
        workers_(static_cast<std::size_t>(workers_of(rule_, comm.world()))),
        shares_(static_cast<std::size_t>(comm.world()), 0),
        groups_(shares_.size(), serves_only) {
    const auto even = share_alike(start.samples, std::vector<std::size_t>(workers_, 1));
    std::ranges::copy(even, shares_.begin());
    std::iota(groups_.begin(), groups_.begin() + static_cast<std::ptrdiff_t>(workers_), 0);
  }

  void prepare() override {
    if (!group_) form_groups();
  }
  // Then all hold the same parameters.
  void run(std::uint64_t stop_at) override {
    if (guests_) guests_->open();
    const bool averages = AsyncGroup::colors(groups_)[static_cast<std::size_t>(comm_.rank())] >= 0;
    while (is_worker()) {
      const auto asked = steady_clock::now();
      const auto part = group_->begin(stop_at);
      waited_ += steady_clock::now() - asked;
      if (!part.goes_on) break;
      worker_.compute(part.first, part.count);
      const auto computed = steady_clock::now();
      group_->exchange(worker_.gradients, velocity_.empty() ? worker_.server_rate(part.done) : worker_.rate(part.done),
                       worker_.parameters);
      waited_ += steady_clock::now() - computed;
      ++pushes_;
      averages_ += averages ? 1 : 0;
      worker_.keep(part.done);
    }
    if (guests_) guests_->close();
    // The last ones push until then, guests too.
    comm_.barrier({.timeout = longest_wait});
    server_->pull(worker_.parameters);
    if (group_rule_) follow_speeds();
  }
  void leave() override {
    guests_.reset();
    if (server_) server_->leave();
  }
  std::uint64_t exchanges() const override { return comm_.world() > 1 ? pushes_ : 0; }
  std::uint64_t averages() const override { return averages_; }
  nanoseconds waited() const override { return waited_; }
  std::vector<std::size_t> shares() const override { return shares_; }
  std::vector<int> groups() const override { return groups_; }
  std::uint64_t plain_buckets() const override {
    return (server_ ? server_->plain_messages() : 0) + (group_ ? group_->plain_buckets() : 0);
  }
  std::size_t state_bytes() const override {
    return (server_ ? server_->state_bytes() : 0) + (group_ ? group_->state_bytes() : 0);
  }
  // A group's momentum, and what is owed to gradients. What workers hold is what servers hold, where all have stopped.
  std::vector<std::byte> save() override {
    if (!server_) return kept_;
    const auto velocity = std::as_bytes(std::span(velocity_));
    std::vector<std::byte> all{velocity.begin(), velocity.end()};
    const auto to_gradients = group_ ? group_->owed(worker_.gradients) : owed_;
    const auto owed = std::as_bytes(std::span(to_gradients));
    all.insert(all.end(), owed.begin(), owed.end());
    return all;
  }
  void restore(ConstBytes kept) override { kept_.assign(kept.begin(), kept.end()); }

 private:
  bool is_worker() const { return static_cast<std::size_t>(comm_.rank()) < workers_; }

  // Where speeds are not known, first by what some batches take that change nothing.
  void form_groups() {
    if (group_rule_) {
      if (speeds_.speeds().empty()) measure_speeds();
      groups_ = groups_by(speeds_.speeds(), *group_rule_, groups_.size());
      share();
    }
    make_server();
    if (start_.serve > 0 && comm_.rank() == 0) guests_ = make_guests();
    make_group();
  }

  void measure_speeds() {
    if (is_worker())
      for (std::size_t i = 0; i < batches_to_measure; ++i) worker_.try_pace(start_.samples / workers_);
    speeds_.add(measured());
  }

  // Shares at once, and with other groups as soon as these are formed, which goes on beside the next steps.
  void follow_speeds() {
    const bool has_changed = speeds_.add(measured());
    if (has_changed) {
      next_groups_ = groups_by(speeds_.speeds(), *group_rule_, groups_.size());
      start_.groups->prepare({AsyncGroup::colors(next_groups_)});
      share();
    }
    if (next_groups_.empty()) return;
    if (start_.groups->all_are_ready(replica::TeamPool::Hear::now)) {
      groups_ = std::exchange(next_groups_, {});
      make_group();
      start_.groups->keep_only(AsyncGroup::colors(groups_));
    } else if (has_changed) {
      make_group();
    }
  }

  std::vector<PaceReport> measured() const {
    auto paces = worker_.paces();
    paces.resize(workers_);
    return paces;
  }
  void share() {
    const auto shares = share_by_speed(start_.samples, speeds_.speeds());
    std::copy(shares.begin(), shares.end(), shares_.begin());
  }

  void make_group() {
    if (group_) owed_ = group_->take_owed(worker_.gradients);
    group_ = std::make_unique<AsyncGroup>(comm_, *server_, groups_, shares_,
                                          AsyncGroupOptions{.momentum = {worker_.momentum, velocity_},
                                                            .pool = start_.groups,
                                                            .answer = group_rule_ ? Answer::next_step : Answer::now});
    group_->owe(std::exchange(owed_, {}));
  }

  void make_server() {
    server_ = std::make_unique<ParameterServer>(
        comm_, rule_, worker_.parameters, start_.done,
        ParameterServerOptions{.owners = owners(), .compress = start_.compress, .tensors = start_.tensors});
    if (group_rule_ && is_worker() && worker_.momentum > 0) velocity_.resize(worker_.gradients.size());
    const auto velocity = std::as_writable_bytes(std::span(velocity_));
    const std::size_t owed = kept_.size() - std::min(kept_.size(), velocity.size());
    if (kept_.size() >= velocity.size() && (owed == 0 || owed == worker_.gradients.size_bytes())) {
      const auto rest = std::ranges::copy_n(kept_.begin(), std::ssize(velocity), velocity.begin()).in;
      owed_.resize(owed / sizeof(float));
      std::ranges::copy(rest, kept_.end(), std::as_writable_bytes(std::span(owed_)).begin());
    }
    kept_.clear();
  }

  std::unique_ptr<ParameterGuests> make_guests() const {
    return std::make_unique<ParameterGuests>(*server_, worker_.parameters.size(),
                                             GuestOptions{.port = start_.serve,
                                                          .interface_address = comm_.options().interface_address,
                                                          .security = comm_.options().security});
  }

  // The fastest own the lowest layers, which stand last among the parameters.
  std::vector<Rank> owners() const { return rule_.servers > 0 ? std::vector<Rank>{} : slowest_first(speeds_.speeds()); }

  Communicator& comm_;
  const ServerRule rule_;
  const std::optional<GroupRule> group_rule_;
  const OwnPaceWorker worker_;
  const OwnPaceStart start_;
  WorkerSpeeds speeds_;                // of workers
  const std::size_t workers_;          // the first ranks; the others serve and do nothing else
  std::vector<std::byte> kept_;        // of a checkpoint, until there is the server
  std::vector<float> owed_;            // to this rank's gradients, until there is the next group
  std::vector<float> velocity_;        // of this rank's group; of a policy without groups there is none
  std::unique_ptr<AsyncGroup> group_;  // outlives the server, whose answer may be under way into its memory
  std::unique_ptr<ParameterServer> server_;
  std::unique_ptr<ParameterGuests> guests_;  // of rank 0
  std::vector<std::size_t> shares_;
  std::vector<int> groups_;
  std::vector<int> next_groups_;  // that are being formed; none
  std::uint64_t pushes_ = 0;
  std::uint64_t averages_ = 0;  // among this worker's group
  nanoseconds waited_{};
};

}  // namespace

void prepare_own_pace(const SyncPolicy& policy, const OwnPaceStart& start) {
  if (policy.groups())
    start.groups->prepare({AsyncGroup::colors(
        groups_by(start.speeds.speeds(), *policy.groups(), static_cast<std::size_t>(start.groups->comm().world())))});
}

std::unique_ptr<OwnPaceTraining> server_training(Communicator& comm, const SyncPolicy& policy, OwnPaceWorker worker,
                                                 const OwnPaceStart& start) {
  return std::make_unique<ServerTraining>(comm, policy, std::move(worker), start);
}

std::unique_ptr<OwnPaceTraining> own_pace_training(Communicator& comm, const SyncPolicy& policy, OwnPaceWorker worker,
                                                   const OwnPaceStart& start) {
  if (policy.server()) return server_training(comm, policy, std::move(worker), start);
  if (policy.meets_peers()) return peer_training(comm, std::move(worker), start);
  return nullptr;
}

}  // namespace ranvier::trainer
