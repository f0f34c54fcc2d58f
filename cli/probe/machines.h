// What the ranks of each machine send together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/measured_network.h"

namespace ranvier::probe {

// Of the machines with several ranks, by at most so many samples of four times so many bytes; `network` says what their
// links carry. All ranks call it.
std::vector<MeasuredMachine> measure_machines(Communicator&, const MeasuredNetwork& network, std::size_t bytes,
                                              std::uint64_t samples);

}  // namespace ranvier::probe
