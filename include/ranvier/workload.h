// What training asks of a network in one step: layers, what each computes, and what it sends in which group.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ranvier/design.h"
#include "ranvier/network.h"
#include "ranvier/types.h"

namespace ranvier {

// In which groups NPUs talk: the ways to divide a model and its data.
enum class Role : std::uint8_t {
  tensor,       // each layer divided
  data,         // replicas of the whole model
  expert,       // the experts divided: a part of a data group
  expert_data,  // replicas of one expert: the rest of the data group
  pipeline,     // the sequence of layers divided
  forward,      // groups that a file gives by pass, not by role
  input_gradient,
  weight_gradient
};
inline constexpr int role_count = 8;

struct Communication {
  Collective collective = Collective::all_reduce;
  double bytes = 0;  // as bytes_by_dimension takes them
  Role role = Role::data;
};

struct Phase {
  double compute_ns = 0;
  std::vector<Communication> communications = {};
};

// The three passes over a layer.
struct Layer {
  std::string name = {};
  Phase forward = {};
  Phase input_gradient = {};
  Phase weight_gradient = {};
};

// How many NPUs divide each layer (tensor), the data, the layers (pipeline) and the experts. 0 for data: as many as
// there are.
struct Degrees {
  int tensor = 1;
  int expert = 1;
  int data = 0;
  int pipeline = 1;
};

// Members of a group along one axis of the ranks' numbers: so many, that far apart.
struct Grouping {
  Rank size = 1;
  Rank stride = 1;
  auto operator<=>(const Grouping&) const = default;
};
// Along several axes, the innermost first: groups are numbered along the first axis first. None: each rank by itself.
using Axes = std::vector<Grouping>;

struct Workload {
  std::string name = {};
  Degrees degrees = {};
  std::map<Role, Axes> groups = {};  // that a file gives by pass, in place of what the degrees make
  std::vector<Layer> layers = {};
  double idle_ns = 0;  // loading data and the optimizer, where they were measured
  // A pipeline that fills and drains: how much of the time of its passes, and of what they wait for in other stages as
  // in its own, is added to them. Averages of weight gradients do not wait for it again.
  double fills = 0;
  std::int64_t recorded_npus = 0;  // of a recording: on how many; 0 where nothing depends on that
};

// How long nothing is computed while a pipeline fills and drains.
double bubble_ns(const Workload&);

// ---- Ready-made ones, derived from the published hyper-parameters of each model.

// "gpt3", "llama3-70b:tp=8,pp=4,batch=2": a name and, where wanted, degrees of parallelism (tp, dp, pp, ep), sequences
// per replica (batch) and their length (sequence), transformer blocks (layers). Throws Error{usage} with the nearest
// right name, and for settings that the model cannot have: degrees that do not divide its heads or experts, more stages
// than blocks, any division of a model that is replicated.
Workload make_workload(std::string_view spec);
std::span<const std::string_view> workload_names();

// ---- A workload on a network.

// How much of each dimension the groups of each role span; none for a role that nobody uses.
struct Placement {
  GroupSizes groups[role_count];
  GroupSizes& of(Role role) { return groups[static_cast<int>(role)]; }
  const GroupSizes& of(Role role) const { return groups[static_cast<int>(role)]; }
};
// The innermost dimensions go to tensor parallelism, the next to data (of those the first to experts), the outermost to
// the pipeline. Throws Error{usage} where degrees do not fit: their product must be the NPUs of the network, and each
// group must span whole dimensions but for the outermost of its own, which it may share.
Placement place(const Degrees&, const NetworkShape&);

// The same with the groups of its passes, of which the placement says how much of each dimension they span. Those of
// weight gradients have in each dimension what the groups of the other passes leave between them, as data groups have
// beside tensor groups, where both are to fit into it. Throws Error{usage} where groups do not divide a dimension.
Workload with_groups(Workload, const Placement&, const NetworkShape&);

// In which order chunks of a collective take the dimensions.
enum class ChunkOrder : std::uint8_t {
  fixed,  // all from the innermost to the outermost
  mixed   // each chunk in an order of its own, in the best mix there is
};

struct StepOptions {
  NetworkEffects effects = {};
  ChunkOrder order = ChunkOrder::fixed;
};
// Without overlap: each collective waits for all that comes before, and computing waits for it. One case.
StepTime step_time(const Workload&, const Placement&, const NetworkShape&, const StepOptions& = {});

}  // namespace ranvier
