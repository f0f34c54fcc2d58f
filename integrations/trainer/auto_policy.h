// --sync auto: finds out what the choice of a policy depends on, and asks choose_policy. Steps that train anyway tell
// how fast workers compute and what averages take; what they do not show is measured only where it may change the
// choice, and where the steps that are left can win more than it takes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ranvier/choose_policy.h"
#include "ranvier/communicator.h"
#include "ranvier/exchange.h"
#include "ranvier/parameter_server.h"
#include "ranvier/sync.h"
#include "ranvier/worker_speeds.h"
#include "replica/groups.h"

namespace ranvier::trainer {

class AutoPolicy {
 public:
  // All ranks construct one. `groups`: of the world, which outlives this. `nodes`: by rank. `samples`: of a step of
  // everybody's. `compress`: of what everybody averages, between nodes, and of what servers are told and tell;
  // `tensors`: that the parameters are of.
  AutoPolicy(std::shared_ptr<replica::TeamPool> groups, std::vector<int> nodes, double samples,
             std::vector<Tensor> tensors, std::string compress, bool takes_servers);

  // A step that all have taken together: what this rank has waited for averages, what of them was hidden behind its
  // computing, and whether they were everybody's or those of nodes.
  struct Step {
    std::chrono::nanoseconds waited{};
    std::chrono::nanoseconds hidden{};
    bool among_all = true;
  };
  void add(const Step& step);
  // So many pushes to servers have taken so long together.
  void add_pushes(std::chrono::nanoseconds waited, std::uint64_t count);

  // Another policy is in use: what was added belongs to the one before.
  void forget_steps();
  // What every rank has measured of its pace. Whether speeds() are others now. Of `few` steps others will say more.
  bool add_paces(std::vector<PaceReport> paces, bool few = false);

  // By what was added since the last time, and paces at least once. All ranks call, with the same and while nothing is
  // under way, and get the same choice. Few steps have to say it more clearly.
  PolicyChoice choose(const PolicyChoice& current, double steps_left);
  // By rank, by which it has chosen: samples a second, as far as they are more than noise.
  std::vector<double> speeds() const { return speeds_.speeds(); }
  const WorkerSpeeds& worker_speeds() const { return speeds_; }
  // Exchanges that only measured, of all ranks or of all of a node.
  std::uint64_t measurements() const { return measurements_; }

 private:
  using Clock = std::chrono::steady_clock;

  bool is_serving(const PolicyChoice& current) const;
  void learn(const PolicyChoice& current);
  void learn_from_steps(const std::vector<double>& all, std::size_t each, std::size_t steps, bool by_gradients);
  bool is_measuring_due() const;
  PolicySituation situation(double steps_left) const;
  void measure_for(const PolicyForecast& contender);
  void measure_inside();
  void measure_between();
  void measure_push();
  void measure_served();
  ParameterServer& server();
  double seconds_of(const std::function<void()>& exchange, int least_times = 1);
  std::span<float> scratch();

  Communicator& comm_;
  const std::vector<int> nodes_;
  replica::Teams teams_;  // of the average that is coded between nodes
  const double samples_;
  const std::vector<Tensor> tensors_;
  const std::string compress_;
  const bool takes_servers_;

  std::vector<PaceReport> paces_;  // by rank, the last ones
  WorkerSpeeds speeds_;
  bool knows_little_ = false;  // few steps
  // Since the last choice.
  std::vector<Step> steps_;
  std::chrono::nanoseconds pushing_{};
  std::uint64_t pushes_ = 0;

  // As far as they are known: see PolicySituation.
  std::optional<double> inside_;
  std::optional<double> between_;
  double hidden_ = 0;
  std::optional<double> push_;
  std::optional<double> served_;

  std::vector<float> scratch_;  // while something is measured, as is …
  std::vector<float> held_;
  std::unique_ptr<ParameterServer> server_;    // … this
  std::optional<Clock::time_point> measured_;  // when that was over, and how long it took
  Clock::duration measuring_{};
  std::uint64_t measurements_ = 0;
};

}  // namespace ranvier::trainer
