// What is simulated: programs whose messages go over channels, and channels over links. A folded world and a whole one
// differ only in how this is made.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/simulate/fluid.h"
#include "ranvier/simulate.h"

namespace ranvier::plan {

struct Instance {
  struct Channel {
    std::vector<Crossing> route = {};
    double latency_ns = 0;
    Rank from = 0;  // for people
    Rank to = 0;
    bool crashes = false;  // with SimulateOptions::crash: it begins or ends at that rank, or goes through it
  };
  struct LinkInfo {
    FluidLink speed = {};
    std::string from = {};
    std::string to = {};
    std::int32_t dimension = 0;
  };
  // By simulated rank: its program, and the channel of each of its instructions (none of copies).
  std::vector<Program> programs = {};
  std::vector<std::vector<std::uint32_t>> send_channels = {};
  std::vector<std::vector<std::uint32_t>> receive_channels = {};
  std::vector<double> slowdown = {};  // by simulated rank
  std::vector<Channel> channels = {};
  std::vector<LinkInfo> links = {};
  bool folded = false;
};

// Which shifts were proven to leave a schedule on a topology as it is, by how its chunks are cut: 0 where each is
// several slices, however many, else so many to a slice. What waits for what is the same then at all lengths.
using Symmetry = std::map<std::size_t, std::size_t>;

struct Job {
  const Schedule& schedule;
  const Topology& topology;
  std::size_t count;
  std::size_t element_bytes;
  const SimulateOptions& options;
  // What is known, and added to; of chunks that are all alike.
  Symmetry* symmetry = nullptr;
  std::size_t cut = 0;
};
Program program_of(const Job&, Rank);

Instance whole(const Job&);
// One rank that stands for all, if all do the same.
std::optional<Instance> folded(const Job&);
// The dimensions of "torus:4x8" and "RI(8)_SW(4)", the last one counted fastest; none for other topologies.
std::vector<Rank> grid_dims(const Topology&);

// `times` operations in a row: each rank starts the next one when it has ended the one before.
Instance repeated(Instance, std::size_t times);

SimulatedRun run(const Instance&, const SimulateOptions&);
// As ranvier::simulate.
SimulatedRun simulate(const Job&);

}  // namespace ranvier::plan
