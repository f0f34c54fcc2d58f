// What the links of a world can do, measured by a handful of small collectives when its ranks meet. Measured is what
// collectives then meet as well: all ranks at once, on their own cores, through the same executor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "ranvier/communicator.h"
#include "ranvier/cost.h"

namespace ranvier::engine {

// What a transport is like on an ordinary machine: used where nothing is measured, and the scale on which measured
// numbers are rounded.
LinkModel nominal_links(std::string_view transport, bool crowded);

// One operation: how long it took, and what it did.
struct ProbeSample {
  double seconds = 0;  // on the slowest rank
  std::uint32_t depth = 0;
  RankCost work = {};
};
// The model by which these took as long as they did: `tiny` for the price of messages, `large` for that of bytes, which
// neither adds up. α and o keep their nominal proportion: taken apart by two measurements they are mostly noise, and it
// belongs to the kind of transport. γ is what adding takes by itself, and no less than its nominal share of β. Pure.
LinkModel fit_links(const LinkModel& nominal, const ProbeSample& tiny, const ProbeSample& large,
                    double reduce_seconds_per_byte);
// The same with the line between nodes priced by itself: `inside` moved bytes within nodes only, `across` each rank's
// to another node, and adds nothing up either. Pure.
LinkModel fit_nodes(const LinkModel& nominal, const ProbeSample& tiny, const ProbeSample& inside,
                    const ProbeSample& across, double reduce_seconds_per_byte);

struct ProbedWorld {
  Rank rank = 0;
  Rank world = 1;
  Rank ranks_per_node = 0;   // see Links
  bool on_one_host = true;   // likewise
  bool hosts_apart = false;  // likewise
  std::size_t slice_bytes = 0;
  double least_seconds_per_byte = 0;  // where sending is paced, which a short measurement would not notice
};
// How many ranks of a node send to the next node at once where each sends to the one in its place there, if there is
// one; of the node where most do.
Rank streams_across(const ProbedWorld&);
// All ranks call it; each gets the same. Takes some tens of operations of up to 256 KiB, between hosts up to 4 MiB,
// fewer bytes where those would take long. Up to eight hosts of one rank each also exchange as many in pairs, to find
// those whose lines are slower than others'. `run` runs a collective to its end, with the algorithm that it names, and
// throws what that fails with. Each number is the nominal one times a power of two: noise moves a choice only where a
// number lies between two classes, so that float sums come out alike in most runs (docs/decisions/0007).
LinkModel measure_links(const LinkModel& nominal, const ProbedWorld&, const std::function<void(const Request&)>& run);

}  // namespace ranvier::engine
