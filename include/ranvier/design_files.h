// Files about designs: traffic as numbers, and the formats of ASTRA-sim and LIBRA. All throw Error{config} that names
// file, line and column.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ranvier/design.h"
#include "ranvier/execution_trace.h"
#include "ranvier/network.h"
#include "ranvier/workload.h"

namespace ranvier {

// {"compute_ns": K, "terms": [{"weight": w, "bytes": [per dimension]}]}
StepTime read_traffic(const std::filesystem::path&, std::size_t dimensions);

// Who says which NPUs communicate in a text of ASTRA-sim.
enum class AstraGroups : std::uint8_t {
  header_if_any,  // of a text without one: all of them
  header,         // a text without one is refused, with Error{usage}
  elsewhere       // collectives are of the groups of their pass: see read_libra_communicator
};
// The twelve columns of ASTRA-sim 1.0, a line a layer: name, a reserved number, then compute time in ns, collective and
// its bytes for the forward pass, the input gradient and the weight gradient, and the update time, which is not used
// (as in LIBRA). Its two header lines may be there: behind HYBRID_TRANSFORMER the first two passes are of tensor
// groups, the third of data groups.
Workload read_astra_workload(const std::filesystem::path&, AstraGroups);

// LIBRA's network: {Topology: [Ring, FullyConnected, Switch], NpusCount: [16, 8, 32], CostDimension: [InterNode, …]}.
NetworkShape read_libra_network(const std::filesystem::path&);
// LIBRA's cost model: {InterPod: {Link: 7.8, Switch: 18, Nic: 31.6}, …}; tiers that it does not name keep their cost.
CostTable read_libra_costs(const std::filesystem::path&);
// LIBRA's communicator: {Forward: [4, 4, -1, -1], InputGrad: […], WeightGrad: […]}, -1 for dimensions not spanned.
Placement read_libra_communicator(const std::filesystem::path&, const NetworkShape&);

// ASTRA-sim's communicator groups, of Chakra traces: {"1": [0, 1, 2, 3], "2": [0, 4, 8, 12]}.
ProcessGroups read_process_groups(const std::filesystem::path&);

}  // namespace ranvier
