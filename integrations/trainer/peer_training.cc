#include <numeric>
#include <optional>
#include <utility>

#include "integrations/trainer/own_pace.h"
#include "ranvier/peer_average.h"

namespace ranvier::trainer {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

class PeerTraining final : public OwnPaceTraining {
 public:
  PeerTraining(Communicator& comm, OwnPaceWorker worker, const OwnPaceStart& start)
      : comm_(comm), worker_(std::move(worker)), start_(start) {}

  // Not earlier: a checkpoint may put other parameters there.
  void prepare() override {
    if (!peers_) peers_.emplace(comm_, worker_.parameters, start_.done, start_.seed, start_.compress);
  }
  // Replicas differ afterwards.
  void run(std::uint64_t stop_at) override {
    for (;;) {
      const auto asked = steady_clock::now();
      const auto start = peers_->begin(stop_at, batch());
      waited_ += steady_clock::now() - asked;
      if (start.count == 0) break;
      peers_->read(worker_.parameters);
      worker_.compute(start.first, start.count);
      const auto computed = steady_clock::now();
      peers_->update(worker_.parameters, start.count, [&] { worker_.step(start.done); });
      waited_ += steady_clock::now() - computed;
      worker_.keep(start.done);
    }
    comm_.barrier({.timeout = longest_wait});  // the last averages are over
    peers_->read(worker_.parameters);
  }
  void leave() override {
    if (peers_) peers_->leave();
  }
  std::uint64_t exchanges() const override { return peers_ ? peers_->averages() : 0; }
  nanoseconds waited() const override { return waited_; }
  std::uint64_t plain_buckets() const override { return peers_ ? peers_->plain_messages() : 0; }
  std::size_t state_bytes() const override { return peers_ ? peers_->state_bytes() : 0; }
  std::vector<std::size_t> shares() const override {
    return share_alike(start_.samples, std::vector<std::size_t>(static_cast<std::size_t>(comm_.world()), 1));
  }
  std::vector<int> groups() const override {
    std::vector<int> alone(static_cast<std::size_t>(comm_.world()));
    std::iota(alone.begin(), alone.end(), 0);
    return alone;
  }

 private:
  std::size_t batch() const { return shares()[static_cast<std::size_t>(comm_.rank())]; }

  Communicator& comm_;
  const OwnPaceWorker worker_;
  const OwnPaceStart start_;
  std::optional<PeerAverage> peers_;
  nanoseconds waited_{};
};

}  // namespace

std::unique_ptr<OwnPaceTraining> peer_training(Communicator& comm, OwnPaceWorker worker, const OwnPaceStart& start) {
  return std::make_unique<PeerTraining>(comm, std::move(worker), start);
}

}  // namespace ranvier::trainer
