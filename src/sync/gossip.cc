// Gossip: each rank takes its own step and hands half of its parameters on, to a peer at a distance that doubles from
// step to step (the one-peer exponential graph), so that after log2 W steps everybody has heard of everybody. Assran,
// Loizou, Ballas and Rabbat, "Stochastic Gradient Push for Distributed Deep Learning", ICML 2019 (arXiv:1811.10792).
//
// Push-sum carries a weight w beside the parameters x, and trains on x / w. In lock step each rank gets exactly one
// half for the half that it gives, so w stays 1 (the mixing matrix is doubly stochastic) and is not sent. The sum over
// ranks is conserved; a message of n bytes a step is what a rank sends, whatever W is.
#include "ranvier/error.h"
#include "sync/periodic.h"

namespace ranvier::sync {
namespace {

class GossipPolicy final : public SyncPolicy {
 public:
  GossipPolicy(std::string_view spec, std::uint64_t world) : spec_(spec), world_(world) {}

  std::string_view spec() const override { return spec_; }
  std::span<const std::string> levels() const override { return levels_; }
  bool averages_parameters() const override { return true; }
  bool pushes() const override { return true; }
  bool weighs_samples() const override { return false; }

  std::vector<SyncAction> react(const SyncEvent& event) override {
    if (world_ == 1) return {};
    if (event.point == SyncPoint::step_ended) {
      const std::size_t hops = hops_;
      hops_ = 2 * hops_ < world_ ? 2 * hops_ : 1;
      return {{.what = SyncAction::What::push, .inside = 0, .level = 1, .hops = hops}};
    }
    if (event.point == SyncPoint::ended) return {{.what = SyncAction::What::parameters, .inside = 0, .level = 1}};
    return {};
  }

  std::vector<double> save() const override { return {static_cast<double>(hops_)}; }
  void restore(std::span<const double> kept) override {
    if (kept.size() != 1 || !(kept[0] >= 1 && kept[0] <= static_cast<double>(world_)))
      throw Error(ErrorKind::config, "what the checkpoint kept for the policy '" + spec_ +
                                         "' is of another one; resume with the --sync that it was saved with");
    hops_ = static_cast<std::size_t>(kept[0]);
  }

 private:
  const std::string spec_;
  const std::uint64_t world_;
  const std::vector<std::string> levels_{std::string(everybody)};
  std::size_t hops_ = 1;
};

}  // namespace

std::unique_ptr<SyncPolicy> gossip(std::string_view spec, const StageSpec& stage, const SyncContext& context) {
  Parameters(stage).end();
  return std::make_unique<GossipPolicy>(spec, context.world);
}

}  // namespace ranvier::sync
