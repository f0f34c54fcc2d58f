// A network as it was measured, pair by pair, and its file: what `ranvier probe` writes and `simulate` and `plan` read.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ranvier/topology.h"

namespace ranvier {

// One direction between two ranks, with half of the distance between the quartiles of its samples.
struct MeasuredLink {
  Rank from = 0;
  Rank to = 0;
  double latency_us = 0;  // half of a round trip
  double latency_spread_us = 0;
  double gbit_per_second = 0;
  double gbit_spread = 0;
  double burst_bytes = 0;     // see LinkSpeed
  double gbit_both_ways = 0;  // while as much comes the other way, as in most collectives; 0: not measured
  // The share of its packets that were lost, between the limits of 95 % confidence, as MeasuredNetwork::loss_by sees
  // it.
  double packets = 0;  // of which it is; 0: nobody counted them
  double loss = 0;
  double loss_least = 0;
  double loss_most = 0;
  // What a collective gets of it.
  double gbit_in_collectives() const { return gbit_both_ways > 0 ? gbit_both_ways : gbit_per_second; }
};

// Ranks on one machine. What they send, receive and reduce takes its processors' time, so that all of them may get less
// at once than each pair by itself.
struct MeasuredMachine {
  std::vector<Rank> ranks = {};  // ascending, two or more
  // What all of them send, and receive as much, while they make an all_reduce among them by a ring.
  double gbit_together = 0;
};

struct MeasuredNetwork {
  Rank world = 1;
  std::string transport = {};
  std::string loss_by = {};                    // who saw losses, for people
  std::vector<MeasuredLink> links = {};        // every ordered pair once
  std::vector<MeasuredMachine> machines = {};  // those of several ranks, none of which is on two of them
};

// E. B. Wilson: Probable inference, the law of succession, and statistical inference. Journal of the American
// Statistical Association 22 (1927): limits that hold for few losses, and for none.
void set_loss(MeasuredLink&, double packets, double lost);

// The pairs, the lower rank first, of which a direction carries less than 0.9 of what both ends reach with others, or
// while as much comes the other way less than 0.95 of what it carries alone. What disturbs a measurement for a moment
// makes it lower, and a collective is as slow as its slowest pair, so that such a pair is to be measured again.
std::vector<std::pair<Rank, Rank>> doubtful_pairs(const MeasuredNetwork&);
// Of two measurements of a link that of the higher rate, and the higher rate both ways. Packets of both count.
MeasuredLink better_of(const MeasuredLink&, const MeasuredLink&);

// Gbit/s that a ring of these ranks, in this order and back to the first, sends in all if nothing but its links holds
// it back.
double ring_gbit(const MeasuredNetwork&, std::span<const Rank> ranks);

// No link of a machine's ring carries less both ways than its share of what the ring did: what a pair by itself found
// below that, up to its rate one way, was disturbed.
void raise_by_rings(MeasuredNetwork&);

std::string to_toml(const MeasuredNetwork&);
// Throws Error{config} that names line and column, or the pair that is missing.
MeasuredNetwork read_measured_network(const std::filesystem::path&);

// Each rank has as much to send and to receive as its fastest peer gets from it and gives it, which all of its messages
// share; each pair has its own link between them, with the latency and rate that were measured. Of a
// shaped network each of the three has a bucket of the median depth. Where a machine's ranks got less together than
// 0.75 of what the links of their ring carry, its processors held them back: what its ranks send and what they receive
// shares these as one more link.
Topology measured_topology(const MeasuredNetwork&);

}  // namespace ranvier
