// A network as a value: who is joined to whom, how fast, and which way bytes go from one rank to another. Schedules are
// judged on it here; nothing of it touches a real network.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ranvier/schedule.h"
#include "ranvier/types.h"

namespace ranvier {

// A corner of the network's graph: ranks 0 … world-1 are the endpoints, and the switches follow.
using Vertex = std::int32_t;

struct LinkSpeed {
  double bytes_per_second = 12.5e9;        // 100 Gbit/s
  std::chrono::nanoseconds latency{1000};  // from the first byte sent to the first received
  // What it passes at once after a rest, a token bucket's depth: saved up at the link's own rate while less than that
  // is sent.
  double burst_bytes = 0;
};

// One direction of a cable: a full-duplex cable is two links.
struct Link {
  Vertex from = 0;
  Vertex to = 0;
  LinkSpeed speed;
  // Of a grid that along which it leads, the first one 0; of a tree of switches its level, 0 at the ranks.
  std::int32_t dimension = 0;
};

using LinkNumber = std::uint32_t;  // an index of Topology::links
using Path = std::vector<LinkNumber>;

struct Topology {
  std::string name;  // as make_topology takes it: "ring", "torus:4x4", …
  Rank world = 1;
  std::int32_t switches = 0;
  bool ranks_forward = false;  // what is sent to others, as NPUs do that have links of their own in several directions
  std::vector<Link> links;
  // The way of everything that `from` sends to `to`, link by link; empty from a rank to itself. It is always the same
  // one, and a shortest one.
  std::function<Path(Rank from, Rank to)> path;
  // Of switches that add up or copy what they pass on: how much of a message between two ranks a link of its path
  // carries, as a part of its bytes. None: all of it. Only simulate() goes by it.
  std::function<double(Rank from, Rank to, LinkNumber)> carried = {};
  // Of what is no switch, though it is numbered among them.
  std::map<Vertex, std::string> names = {};
};

// "rank 3", "switch 0"; "rank 3 -> switch 0", and of a link from a vertex to itself only who that is.
std::string vertex_name(const Topology&, Vertex);
std::string link_name(const Topology&, LinkNumber);

// ---- Builders. Each throws Error{usage} for a world or dimensions that it cannot serve. All links have one speed.

namespace topology {

// Every rank on one switch, which forwards everything at once: what a full crossbar, or one Ethernet switch, is.
Topology star(Rank world, LinkSpeed = {});
// A cable between every two ranks.
Topology fully_connected(Rank world, LinkSpeed = {});

// Ranks in a grid, the last dimension counted fastest: rank 5 of 2x4 stands in row 1, column 1. Cables join neighbours;
// in a torus the two ends of each line of more than two are neighbours as well, and a ring is a torus of one dimension.
// Ranks forward for others. Dimension after dimension is put right, the last one first, each on the shorter way around;
// halfway around an even ring both are as short: even places go up, odd ones down, so that both directions are used.
Topology ring(Rank world, LinkSpeed = {});
Topology mesh(const std::vector<Rank>& dims, LinkSpeed = {});
Topology torus(const std::vector<Rank>& dims, LinkSpeed = {});

// A tree of switches, each with `arity` cables down, to ranks or to lower switches, and `arity` / `oversubscription`
// up, each to another switch; as many levels as the world needs. The routing is d-mod-k: see fat_tree.cc.
Topology fat_tree(Rank world, std::int32_t arity, std::int32_t oversubscription = 1, LinkSpeed = {});

}  // namespace topology

// star, ring, fully_connected, mesh:2x4, torus:4x4x4, fat_tree:4 (its arity), fat_tree:4,oversubscription=2.
// Throws Error{usage}: for an unknown name with the nearest one, for dimensions that do not multiply to the world.
Topology make_topology(std::string_view spec, Rank world);
std::span<const std::string_view> topology_names();

// Both links between two corners.
struct Cable {
  Vertex one = 0;
  Vertex other = 0;
};
// The same network after it has lost cables. What went over them takes a shortest way around, through ranks only where
// ranks forward; all else goes as before. Throws Error{usage} where there is no such cable; `path` of what is
// left does where there is no way around.
Topology without_cables(const Topology&, const std::vector<Cable>&);

// ---- What a schedule does to a network.

// All that one rank sends another in one round counts as one transfer. Loads are in multiples of the whole vector (as
// Verdict::vector_bytes), which chunks share evenly.
struct Contention {
  std::uint32_t most_transfers = 0;  // on one link in one round; 0 where nobody sends
  std::uint32_t round = 0;           // the first round in which it comes to that,
  LinkNumber link = 0;               // and its first such link
  double busiest_load = 0;           // what the link that is busy longest carries in all rounds: the least time
  LinkNumber busiest_link = 0;
  double load_by_rounds = 0;  // what each round's busiest link carries, added up: the time if round waits for round
  double traffic = 0;         // what all links carry
};
// Throws Error{usage} where the topology is of another world than the schedule.
Contention contention(const Schedule&, const Topology&);

// Of a schedule: that it is right, what it costs its ranks, and how it shares the links of networks.
struct Assessment {
  Verdict verdict;                      // its bytes are exact: all chunks have one size
  std::vector<Contention> contentions;  // one a network
  // By the rank that sends most, in multiples of the whole vector.
  double sent() const;
};
// Proves it with chunks of several slices and of different sizes, in place and not (in worlds of more than 128 ranks
// with chunks of one element: the proof takes the cube of the world). Throws as contention does.
Assessment assess(const Schedule&, std::span<const Topology>);

// For algorithms that are to use neighbours only, those joined by a cable or through switches: the first transfer (by
// round, then rank) that another rank has to forward, as one sentence; empty if there is none. Throws as contention
// does.
std::string missing_link(const Schedule&, const Topology&);

}  // namespace ranvier
