// Asynchronous workers: each pushes its gradient to the parameter servers and goes on from what they hold, waiting for
// nobody (async), or for the slowest once it is s steps ahead of it (ssp). Dean et al., "Large Scale Distributed Deep
// Networks", NeurIPS 2012; Ho et al., NeurIPS 2013. The servers' rule is all that such a policy decides.
#include "sync/periodic.h"

namespace ranvier::sync {
namespace {

class ServerPolicy final : public SyncPolicy {
 public:
  ServerPolicy(std::string_view spec, const ServerRule& rule, std::optional<GroupRule> groups = {})
      : spec_(spec), rule_(rule), groups_(groups) {}
  std::string_view spec() const override { return spec_; }
  std::span<const std::string> levels() const override { return levels_; }
  bool averages_parameters() const override { return false; }
  std::optional<ServerRule> server() const override { return rule_; }
  std::optional<GroupRule> groups() const override { return groups_; }
  std::vector<SyncAction> react(const SyncEvent&) override { return {}; }

 private:
  const std::string spec_;
  const ServerRule rule_;
  const std::optional<GroupRule> groups_;
  const std::vector<std::string> levels_{std::string(everybody)};
};

std::size_t servers_of(Parameters& parameters) { return parameters.count("servers", 0, 0, 1'000'000); }

ServerRule rule_of(Parameters& parameters) {
  const bool by_staleness = parameters.count("staleness", 1, 0, 1) == 1;
  return {.bound = {},
          .damping = by_staleness ? ServerRule::Damping::staleness : ServerRule::Damping::share,
          .compensation = parameters.number("compensate", 0, 0, 100),
          .servers = servers_of(parameters),
          .ranges = parameters.count("ranges", 0, 0, 1'000'000)};
}

}  // namespace

std::unique_ptr<SyncPolicy> async(std::string_view spec, const StageSpec& stage, const SyncContext&) {
  Parameters parameters(stage);
  const ServerRule rule = rule_of(parameters);
  parameters.end();
  return std::make_unique<ServerPolicy>(spec, rule);
}

std::unique_ptr<SyncPolicy> ssp(std::string_view spec, const StageSpec& stage, const SyncContext&) {
  Parameters parameters(stage);
  ServerRule rule = rule_of(parameters);
  rule.bound = parameters.count("", 3, 0, longest_period);
  parameters.end();
  return std::make_unique<ServerPolicy>(spec, rule);
}

// Group synchronization for clusters of unequal nodes (patent CN107018184A; Jiang et al., "A Novel Stochastic Gradient
// Descent Algorithm Based on Grouping over Heterogeneous Cluster Systems for Distributed Deep Learning", CCGrid 2019):
// workers of similar speed average their gradients, groups of them are asynchronous to one another. A group's rate is
// its share of the data of the common one, without momentum on the servers, which between groups diverges.
std::unique_ptr<SyncPolicy> group(std::string_view spec, const StageSpec& stage, const SyncContext&) {
  Parameters parameters(stage);
  const GroupRule groups{.ratio = parameters.number("", 1.3, 1, 1000),
                         .largest = parameters.count("largest", 0, 0, 1e6)};
  const ServerRule rule{.damping = ServerRule::Damping::excess, .servers = servers_of(parameters)};
  parameters.end();
  return std::make_unique<ServerPolicy>(spec, rule, groups);
}

}  // namespace ranvier::sync
