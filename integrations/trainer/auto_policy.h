// --sync auto: measures what the choice of a policy depends on, and asks choose_policy.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "integrations/trainer/pace.h"
#include "ranvier/choose_policy.h"
#include "ranvier/communicator.h"
#include "ranvier/exchange.h"
#include "replica/groups.h"

namespace ranvier::trainer {

class AutoPolicy {
 public:
  // All ranks call. `nodes`: by rank. `samples`: of a step of everybody's. `comm` outlives this.
  // `compress`: of what everybody averages, between nodes, and of what servers are told and tell; `tensors`: that the
  // parameters are of.
  AutoPolicy(Communicator& comm, std::vector<int> nodes, double samples, std::vector<Tensor> tensors,
             std::string compress, bool takes_servers);

  // Times averages and pushes of so many parameters, if that has not just been done, and decides; `reports` are
  // everybody's. All ranks call, with the same and while nothing is under way, and get the same choice.
  PolicyChoice choose(const std::vector<PaceReport>& reports, const PolicyChoice& current);
  // That this rank has sent by other means than `comm`: inside its node, and to others.
  std::pair<std::uint64_t, std::uint64_t> bytes() const;

 private:
  using Clock = std::chrono::steady_clock;

  bool is_timing_due() const;
  void time_exchanges();
  double seconds_of(const std::function<void()>& exchange);

  Communicator& comm_;
  const std::vector<int> nodes_;
  const std::unique_ptr<Communicator> inside_;  // null: alone in its node
  replica::Teams teams_;                        // of the average that is coded between nodes
  const double samples_;
  const std::vector<Tensor> tensors_;
  const std::string compress_;
  const bool takes_servers_;
  std::vector<float> scratch_;

  // What was timed last, when that was over, and how long it took.
  double inside_seconds_ = 0;
  double between_seconds_ = 0;
  double push_seconds_ = 0;
  double served_seconds_ = 0;
  std::optional<Clock::time_point> timed_;
  Clock::duration timing_{};
};

}  // namespace ranvier::trainer
