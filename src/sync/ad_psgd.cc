// Asynchronous decentralized descent: each worker at its own pace, after each step the mean with one random peer, and
// nobody waits for anybody else. Lian, Zhang, Zhang and Liu, "Asynchronous Decentralized Parallel Stochastic Gradient
// Descent", ICML 2018 (arXiv:1710.06952). Who meets whom, and when, ranvier/peer_average.h does; between evaluations
// the policy is not asked anything.
#include "sync/periodic.h"

namespace ranvier::sync {
namespace {

class AdPsgdPolicy final : public SyncPolicy {
 public:
  AdPsgdPolicy(std::string_view spec, std::uint64_t world) : spec_(spec), world_(world) {}
  std::string_view spec() const override { return spec_; }
  std::span<const std::string> levels() const override { return levels_; }
  bool averages_parameters() const override { return true; }
  bool meets_peers() const override { return true; }
  std::vector<SyncAction> react(const SyncEvent& event) override {
    if (event.point != SyncPoint::ended || world_ == 1) return {};
    return {{.what = SyncAction::What::parameters, .inside = 0, .level = 1}};
  }

 private:
  const std::string spec_;
  const std::uint64_t world_;
  const std::vector<std::string> levels_{std::string(everybody)};
};

}  // namespace

std::unique_ptr<SyncPolicy> ad_psgd(std::string_view spec, const StageSpec& stage, const SyncContext& context) {
  Parameters(stage).end();
  return std::make_unique<AdPsgdPolicy>(spec, context.world);
}

}  // namespace ranvier::sync
