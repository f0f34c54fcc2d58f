// Synchronization policies: who averages what, with whom and when. A policy is a state machine without I/O, clock or
// thread. Whoever trains tells it what happened and does what it answers: the C++ trainer, the Python adapter and a
// simulator run the same object.
//
//   auto policy = ranvier::make_sync_policy("node:16", {.steps_per_epoch = 468, .steps = 1872});
//   for (const SyncAction& each : policy->react({.point = SyncPoint::step_ended, .step = 16})) …
//
// What is exchanged less often costs less; docs/synchronization.md has each policy's rule, source and price.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ranvier/server.h"

namespace ranvier {

// What is done with an average of parameters x over the replicas. d = x0 - x is how far they have come together since
// the exchange before, which ended at x0, and m what is kept of earlier ones, 0 at first. All replicas go on from
//   m = momentum * m + d / s,   x0 - rate * s * m                       (heavy ball)
//   m = momentum * m + d / s,   x0 - rate * s * (d / s + momentum * m)  (Nesterov)
// with s = unit, the learning rate where the outer step is to follow it. The defaults leave the plain average.
struct OuterStep {
  double rate = 1;
  double momentum = 0;
  bool nesterov = false;
  double unit = 1;
  bool is_plain() const { return rate == 1 && momentum == 0; }
  // How far the outer steps on one d carry replicas in the end, of what they have come themselves.
  double gain() const { return rate / (1 - momentum); }
};

// `change` is d and becomes what x0 is left by; `momentum` is m. Both as long as the parameters.
void take_outer_step(const OuterStep& step, std::span<float> change, std::span<float> momentum);

// Levels are groups of ranks around groups of ranks: level 0 is each rank alone, level 1 the innermost that a policy
// names, the last one everybody.
struct SyncAction {
  enum class What : std::uint8_t {
    gradients,       // are averaged
    parameters,      // are averaged
    begin_average,   // parameters as they are now start on their way to an average
    finish_average,  // that is there by now: replicas move by how far it is from what they sent, and keep their steps
                     // since
    push,            // of this rank's parameters a half stays, the other goes `hops` ranks up, and one comes from below
    begin_fragment,  // how far replicas have come in a part of the parameters starts on its way to everybody
    finish_fragment  // its average is there by now: the outer step on it, and `merge` of what replicas hold now stays
  };
  What what = What::parameters;
  std::size_t inside = 0;  // the level whose groups agree already: one rank of each speaks for all of them
  std::size_t level = 1;   // the level whose groups agree afterwards
  OuterStep outer = {};
  std::size_t hops = 0;
  std::size_t fragment = 0;
  double merge = 0;
};

enum class SyncPoint : std::uint8_t {
  step_begins,  // -> over whom its gradients are averaged, if over anybody
  step_ended,   // the optimizer has changed the parameters
  averaged,     // what step_ended asked for on the last level is done
  ended         // no step comes any more: what leaves all replicas alike, their plain mean
};

struct SyncEvent {
  SyncPoint point = SyncPoint::step_begins;
  std::uint64_t step = 0;    // how many are complete
  double learning_rate = 1;  // of the last step
  double spread = 0;         // averaged: mean over replicas of |x_i - x|^2 / |x - x0|^2, where the policy asks for it
};

// What a policy may have to know of the run; 0 where nobody knows.
struct SyncContext {
  std::uint64_t steps_per_epoch = 1;
  std::uint64_t steps = 1;  // of all of training
  std::uint64_t world = 0;
  // Complete when the policy begins, whose periods are counted from there.
  std::uint64_t begin = 0;
};

// Workers by descending speed are parted where the next one is slower by more than `ratio`; one that would be alone
// joins the nearest group; groups of more than `largest` (0: any size) are cut into equal ones, which saves waiting.
struct GroupRule {
  double ratio = 1.3;
  std::size_t largest = 0;
};
// Of each worker the number of its group, the fastest group first. Throws Error{usage} for speeds that are not above 0.
std::vector<int> group_by_speed(std::span<const double> speeds, const GroupRule& rule);

// The numbers of workers by ascending speed, as parameter servers own layers from the highest to the lowest: the
// gradients of low ones come last, and the next step uses them first.
std::vector<Rank> slowest_first(std::span<const double> speeds);

// All ranks give theirs the same events and get the same answers.
class SyncPolicy {
 public:
  virtual ~SyncPolicy() = default;
  virtual std::string_view spec() const = 0;
  // The names of levels 1, 2, …: "node", "world".
  virtual std::span<const std::string> levels() const = 0;
  // The level over which step_begins ever averages gradients; 0: never.
  virtual std::size_t gradient_level() const { return 0; }
  // Whether it ever averages parameters: replicas then differ in between.
  virtual bool averages_parameters() const = 0;
  virtual bool wants_spread() const { return false; }
  // Whether its averages weigh workers by their samples; else all need as many.
  virtual bool weighs_samples() const { return true; }
  // Whether any average is followed by an outer step.
  virtual bool has_outer_step() const { return false; }
  // OuterStep::gain() of that.
  virtual double outer_gain() const { return 1; }
  // Whether that is in units of the rates of the steps before, each of which every rank has to know.
  virtual bool outer_follows_rate() const { return false; }
  // Behind so many steps it first averages parameters of everybody, or a part of them, or hands halves on.
  virtual std::uint64_t first_average() const { return 1; }
  // Whether averages of the last level are under way while steps go on (SyncAction::What::begin_average).
  virtual bool delays_averages() const { return false; }
  // So many parts of the parameters, about equal ones, travel each by itself; 0: never.
  virtual std::size_t fragments() const { return 0; }
  // Whether its averages of all replicas start from what these had agreed on; others' do only for a codec.
  bool averages_changes() const { return has_outer_step() || wants_spread() || fragments() > 0; }
  // Ranks hand halves of their parameters on (SyncAction::What::push).
  virtual bool pushes() const { return false; }
  // Each rank at its own pace averages with one other at a time (ranvier/peer_average.h).
  virtual bool meets_peers() const { return false; }
  // Of policies that group workers by speed.
  virtual std::optional<GroupRule> groups() const { return std::nullopt; }
  // Of asynchronous policies: how their parameter servers work (ranvier/parameter_server.h). They ask for nothing else.
  virtual std::optional<ServerRule> server() const { return std::nullopt; }
  // Steps are each worker's own, or its group's, and nobody's else.
  bool goes_at_own_pace() const { return meets_peers() || server().has_value(); }
  virtual std::vector<SyncAction> react(const SyncEvent& event) = 0;
  // What it remembers, for checkpoints. restore() takes what save() gave; throws Error{config} for other numbers.
  virtual std::vector<double> save() const { return {}; }
  virtual void restore(std::span<const double>) {}
};

// A policy by its spec. Throws Error{usage} naming the wrong part and the nearest right one.
std::unique_ptr<SyncPolicy> make_sync_policy(std::string_view spec, const SyncContext& context);
// Throws the Error{usage} that make_sync_policy would throw, before the run is known.
void check_sync_policy(std::string_view spec);
// Whether a policy is to be chosen by measuring: "auto", which is for those to know who can. Throws the Error{usage} of
// check_sync_policy, with "auto" among the names.
inline constexpr std::string_view chosen_by_measuring = "auto";
bool check_sync_policy_or_auto(std::string_view spec);

// How many of a step's samples each worker takes, in proportion to its speed and no fewer than `least` (or an even
// share, where that is less): b_i = rint(total * speed_i / sum), the rest to the largest, as Moreno-Álvarez et al.
// share data ("Heterogeneous model parallelism for deep neural networks", Neurocomputing, 2021). Averages are then
// weighted by b_i. Throws Error{usage} for speeds that are not above 0.
std::vector<std::size_t> share_by_speed(std::size_t total, std::span<const double> speeds, std::size_t least = 4);
// The samples of a step that has another number of them than usual, `total`: each worker takes as large a part as its
// share is of all `shares`, which ends at a whole sample; so parts may be empty, but that of the first one.
std::vector<std::size_t> share_alike(std::size_t total, std::span<const std::size_t> shares);

// For people to choose from.
struct SyncPolicyInfo {
  std::string_view name;
  std::string_view rule;        // in a line
  std::string_view parameters;  // "value: …; key=default: …"
  std::string_view source;
};
std::span<const SyncPolicyInfo> sync_policies();

}  // namespace ranvier
