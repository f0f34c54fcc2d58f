// The one state machine behind every policy that averages in periods: bsp, local, post-local, node, hierarchy, slowmo
// and diloco differ in the numbers below only.
//
// Each level has a period. After so many steps its groups' parameters are averaged, inside out, so that an outer level
// averages what its inner ones already agree on. Levels of period 1 may average gradients instead, which is the same
// for plain SGD (up to rounding) and keeps all optimizer states equal, whatever the optimizer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codec/parameters.h"
#include "ranvier/sync.h"

namespace ranvier::sync {

struct PeriodicLevel {
  std::string name;
  std::uint64_t period = 1;  // steps; a multiple of the level's inside it
};

// The period of a policy with one level may follow what the replicas do. `spread` compares how far they have come apart
// since the last average with how far they have come together: below `bound` the period doubles, up to `most`; above
// four times `bound` it halves. (Local SGD loses accuracy where replicas part faster than they progress. Kamp et al.,
// "Efficient Decentralized Deep Learning by Dynamic Model Averaging", ECML PKDD 2018, bound the same distance, and
// average at once where it is exceeded; that takes a message every step.)
struct Adaptation {
  double bound = 0;  // 0: the period stays
  std::uint64_t most = 1;
};

// Averages of the last level may take `delay` steps, in which training goes on; replicas keep what those have come.
// Shen et al., "Faster Distributed Deep Net Training: Computation and Communication Decoupled Stochastic Gradient
// Descent", IJCAI 2019, for the whole period; Zhou et al., "DaSGD", arXiv:2006.00441, 2020, for any part of it.
struct PeriodicRule {
  std::vector<PeriodicLevel> levels;    // inside out
  std::size_t gradient_levels = 0;      // so many of them, each of period 1, average gradients
  std::uint64_t synchronous_steps = 0;  // so many at the beginning average everybody's gradients instead
  OuterStep outer = {};                 // after averages of the last level …
  bool outer_by_rate = false;           // … in units of the period's mean learning rate
  Adaptation adaptation = {};
  std::uint64_t delay = 0;  // less than the last level's period
};

// What stands behind the colon, else an epoch. Throws Error{usage} where neither is known.
std::size_t period_or_epoch(Parameters& parameters, const SyncContext& context);

// DiLoCo's outer step by its settings "rate" and "momentum".
OuterStep nesterov(Parameters& parameters);

std::unique_ptr<SyncPolicy> periodic_policy(std::string_view spec, PeriodicRule rule, const SyncContext& context);

// A policy's name, and what makes its rule, or itself where it is none of these, of what stands behind it.
struct Entry {
  SyncPolicyInfo info;
  PeriodicRule (*rule)(const StageSpec& stage, const SyncContext& context);
  std::unique_ptr<SyncPolicy> (*policy)(std::string_view spec, const StageSpec& stage,
                                        const SyncContext& context) = nullptr;
};
PeriodicRule bsp(const StageSpec&, const SyncContext&);
PeriodicRule local(const StageSpec&, const SyncContext&);
PeriodicRule post_local(const StageSpec&, const SyncContext&);
PeriodicRule node(const StageSpec&, const SyncContext&);
PeriodicRule hierarchy(const StageSpec&, const SyncContext&);
PeriodicRule slowmo(const StageSpec&, const SyncContext&);
std::unique_ptr<SyncPolicy> diloco(std::string_view spec, const StageSpec&, const SyncContext&);
std::unique_ptr<SyncPolicy> streaming(std::string_view spec, const StageSpec&, const SyncContext&);
std::unique_ptr<SyncPolicy> async(std::string_view spec, const StageSpec&, const SyncContext&);
std::unique_ptr<SyncPolicy> group(std::string_view spec, const StageSpec&, const SyncContext&);
std::unique_ptr<SyncPolicy> ssp(std::string_view spec, const StageSpec&, const SyncContext&);
std::unique_ptr<SyncPolicy> ad_psgd(std::string_view spec, const StageSpec&, const SyncContext&);
std::unique_ptr<SyncPolicy> gossip(std::string_view spec, const StageSpec&, const SyncContext&);

inline constexpr std::string_view everybody = "world";
inline constexpr std::size_t longest_period = 1'000'000'000;

}  // namespace ranvier::sync
