// A network of NPUs in dimensions: rings, groups of direct links and switches, one inside the other. It is what a
// design is about before anything is built; topology.h has networks link by link.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ranvier/types.h"

namespace ranvier {

struct LinkSpeed;
struct Topology;

enum class Block : std::uint8_t { ring, fully_connected, switched };

// What a dimension joins, which says what its parts cost.
enum class Tier : std::uint8_t { chiplet, package, node, pod };
inline constexpr int tier_count = 4;

struct NetworkDimension {
  Block block = Block::ring;
  int size = 1;
  Tier tier = Tier::pod;
};

// The first dimension is the innermost: NPUs next to each other in it have consecutive numbers.
struct NetworkShape {
  std::vector<NetworkDimension> dimensions = {};
  std::int64_t npus() const;
};

// "RI(4)_FC(8)_RI(4)_SW(32)". The last dimension joins pods, the one before nodes, then packages, and all further in
// chiplets. Throws Error{usage} that names the column.
NetworkShape parse_network(std::string_view text);
// Whether that is what `text` is to be, and not the spec of a topology (topology.h): no other has parentheses.
inline bool names_a_shape(std::string_view text) { return text.find('(') != std::string_view::npos; }
std::string to_string(const NetworkShape&);
// Its ranks and cables, for the simulator; a switch for each group of a switched dimension. `speed` is of every link:
// of what an NPU has in a dimension a ring's link is half, a full connection's an n-1st and a switch's all. Throws
// Error{usage} for more than 2^20 ranks or 2^24 links.
Topology topology_of(const NetworkShape&, const LinkSpeed& speed);

// Dollars per GB/s of one NPU's bandwidth in a tier. A switched dimension needs link, switch and (between pods) NIC;
// the others links.
struct TierCost {
  double link = 0;
  double switching = 0;
  double nic = 0;
};
struct CostTable {
  TierCost tiers[tier_count] = {{2, 0, 0}, {4, 13, 0}, {4, 13, 0}, {7.8, 18, 31.6}};
};
// What one GB/s of one NPU costs in each dimension.
std::vector<double> unit_costs(const NetworkShape&, const CostTable& = {});

// ---- Collectives of groups that span dimensions.

// How much of each dimension a group spans, by dimension; 1 where it does not go.
using GroupSizes = std::vector<int>;
// That of these NPUs: all that have one of a few places in each dimension. None where some of those are missing.
std::optional<GroupSizes> group_sizes(std::span<const Rank> npus, const NetworkShape&);

// Bytes that each NPU sends in each dimension for a collective of `bytes`, dimension after dimension: an all_reduce
// and a reduce_scatter leave 1/size of their bytes for the next dimension, an all_gather goes the other way (`bytes` is
// then one shard), an all_to_all does not shrink. A gather and a scatter are those of their root, an all_gather's; a
// broadcast, a reduce and a neighbor_exchange cross every dimension whole, a send one.
std::vector<double> bytes_by_dimension(Collective, double bytes, const GroupSizes&);

// What a dimension makes of its bandwidth; the published model has none of this.
struct NetworkEffects {
  // A group of k inside a fully connected dimension of n has (k-1)/(n-1) of its links.
  bool partial_groups = false;
  // How many times less the dimension's switches pass on than their ports take in, by dimension; empty: 1.
  std::vector<double> oversubscription = {};
  // Switches that reduce while they forward (by dimension): an all_reduce sends each byte once instead of twice.
  std::vector<bool> in_network_reduction = {};
  // From one NPU to the next, by dimension; empty: 0.
  std::vector<double> latency_ns = {};
};

}  // namespace ranvier
