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

class ServerTraining final : public OwnPaceTraining {
 public:
  ServerTraining(Communicator& comm, const SyncPolicy& policy, OwnPaceWorker worker, const OwnPaceStart& start)
      : comm_(comm),
        rule_(policy.groups()),
        worker_(std::move(worker)),
        batch_(start.batch),
        server_(comm, policy.server().value(), worker_.parameters, start.done),
        shares_(static_cast<std::size_t>(comm.world()), start.batch),
        groups_(shares_.size()) {
    std::iota(groups_.begin(), groups_.end(), 0);
    if (start.serve > 0 && comm.rank() == 0)
      guests_ = std::make_unique<ParameterGuests>(server_, worker_.parameters.size(),
                                                  GuestOptions{.port = start.serve,
                                                               .interface_address = comm.options().interface_address,
                                                               .security = comm.options().security});
  }

  // Then all hold the same parameters.
  void run(std::uint64_t stop_at) override {
    if (!group_) form_groups();
    if (guests_) guests_->open();
    for (;;) {
      const auto asked = steady_clock::now();
      const auto part = group_->begin(stop_at);
      waited_ += steady_clock::now() - asked;
      if (!part.goes_on) break;
      worker_.compute(part.first, part.count);
      const auto computed = steady_clock::now();
      group_->exchange(worker_.gradients, worker_.server_rate(part.done), worker_.parameters);
      waited_ += steady_clock::now() - computed;
      ++pushes_;
    }
    if (guests_) guests_->close();
    comm_.barrier();  // the last ones have pushed, guests too
    server_.pull(worker_.parameters);
    if (rule_) form_groups();
  }
  void leave() override {
    guests_.reset();
    server_.leave();
  }
  std::uint64_t exchanges() const override { return pushes_; }
  nanoseconds waited() const override { return waited_; }
  std::vector<std::size_t> shares() const override { return shares_; }
  std::vector<int> groups() const override { return groups_; }

 private:
  // First by what some batches take that change nothing, then whenever speeds have changed.
  void form_groups() {
    if (rule_) {
      if (!group_)
        for (std::size_t i = 0; i < batches_to_measure; ++i) worker_.compute(0, batch_);
      auto speeds = worker_.speeds();
      if (group_ && !have_drifted(speeds_, speeds)) return;
      speeds_ = std::move(speeds);
      shares_ = share_by_speed(batch_ * shares_.size(), speeds_);
      groups_ = group_by_speed(speeds_, *rule_);
    }
    group_ = std::make_unique<AsyncGroup>(comm_, server_, groups_, shares_);
  }

  Communicator& comm_;
  const std::optional<GroupRule> rule_;
  const OwnPaceWorker worker_;
  const std::size_t batch_;
  ParameterServer server_;
  std::unique_ptr<ParameterGuests> guests_;  // of rank 0
  std::unique_ptr<AsyncGroup> group_;
  std::vector<std::size_t> shares_;
  std::vector<int> groups_;
  std::vector<double> speeds_;  // by rank, when groups were last formed
  std::uint64_t pushes_ = 0;
  nanoseconds waited_{};
};

}  // namespace

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
