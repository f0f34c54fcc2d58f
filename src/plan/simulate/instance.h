// What is simulated: programs whose messages go over channels, and channels over links. A folded world and a whole one
// differ only in how this is made.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/simulate/fluid.h"
#include "ranvier/network.h"
#include "ranvier/simulate.h"

namespace ranvier::plan {

// Asks SimulateOptions::enough. Throws Error{timeout} where it is.
void end_if_enough(const SimulateOptions&);

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
  std::vector<double> slowdown = {};   // by simulated rank
  std::vector<double> starts_ns = {};  // likewise
  std::vector<Channel> channels = {};
  std::vector<LinkInfo> links = {};
  std::optional<Shifts> folded_by = {};
};

// Which shifts were proven to leave a schedule on a topology as it is, or that none do, by how its chunks are cut: 0
// where each is several slices, however many, else so many to a slice. What waits for what is the same then at all
// lengths.
using Symmetry = std::map<std::size_t, std::optional<Shifts>>;

// Messages of all kinds of ranks: of more, other ways are as good and quicker.
inline constexpr std::size_t few_folded = 1 << 20;

struct Job {
  const Schedule& schedule;
  const Topology& topology;
  std::size_t count;
  std::size_t element_bytes;
  const SimulateOptions& options;
  // What is known, and added to; of chunks that are all alike.
  Symmetry* symmetry = nullptr;
  std::size_t cut = 0;
  bool as_long = false;                  // no shorter one is to tell how long it takes
  std::size_t most_folded = few_folded;  // messages of all kinds of ranks
};
Program program_of(const Job&, Rank);
// 0 where chunks differ.
std::size_t even_chunk_bytes(const Job&);
// That it sends, about.
std::size_t messages_of_rank(const Job&, Rank);
// No trace, crash or other operation beside it.
bool is_one_by_itself(const SimulateOptions&);
bool are_equal(const std::vector<Step>&, const std::vector<Step>&);

// The links of a message's way, and how much of it each carries.
struct Hop {
  LinkNumber link;
  double part;
  auto operator<=>(const Hop&) const = default;
};
std::vector<Hop> way(const Topology&, Rank from, Rank to);

Instance whole(const Job&);
// One rank for each kind of them, if many do the same.
std::optional<Instance> folded(const Job&);
// Of topology_of, if it is one that has all of its cables.
std::optional<NetworkShape> shape_of(const Topology&);
// Of topology::star, where its links are all there and all alike: one of them.
std::optional<LinkSpeed> links_of_star(const Topology&);
// The dimensions of "torus:4x8" and "RI(8)_SW(4)", the last one counted fastest; none for other topologies.
std::vector<Rank> grid_dims(const Topology&);

// `times` operations in a row: each rank starts the next one when it has ended the one before.
Instance repeated(Instance, std::size_t times);
// SimulateOptions::at_once of them, over the same links; each reduces as if no other one did.
Instance beside_itself(Instance, const SimulateOptions&);

SimulatedRun run(const Instance&, const SimulateOptions&);
// Whether both name the same links in the same order. Not where ranks that are alike in one of them are not in the
// other: each has one link for each kind of rank.
bool have_the_same_links(const SimulatedRun& one, const SimulatedRun& other);
// The run that is `far` of its way from one to a longer one, or beyond: times and loads are on a line. Loads as in the
// longer one, where its links are others.
SimulatedRun on_the_line(const SimulatedRun& one, const SimulatedRun& longer, double far);
// How many rounds it has, if they are very many and do the same; else 0.
std::uint32_t repeated_rounds(const Job&);
// Of such a schedule, by its first rounds. Nothing of others, and where too many ranks are not alike.
std::optional<SimulatedRun> by_first_rounds(const Job&);
// Of algorithms that take as much longer for each doubling of their ranks, on a star: by smaller worlds.
std::optional<SimulatedRun> by_smaller_worlds(const Job&);
// As ranvier::simulate.
SimulatedRun simulate(const Job&);

}  // namespace ranvier::plan
