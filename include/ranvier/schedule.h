// A collective algorithm as a value: what each rank sends, receives and reduces, on numbered chunks. The verifier
// proves it, the simulator times it and the executor runs it; none of them knows which algorithm it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ranvier/types.h"

namespace ranvier {

enum class Action : std::uint8_t {
  send,         // from            -> peer
  recv,         // peer            -> to
  recv_reduce,  // from (+) peer   -> to
  copy,         // from            -> to
  reduce        // to (+) from     -> to
};

enum class Buffer : std::uint8_t { input, output, scratch };

// A chunk in one of a rank's three buffers. Input and output may be the same memory (an in-place call); programs are
// written as if they were not, and are right in both cases. Scratch chunk c is as large as Layout::parts says, or where
// it is empty as chunk c of whichever of input and output has more chunks, or as its chunk 0 where that has no chunk c
// (inner ranks of a tree that gathers or scatters); `slot` tells several scratch copies of one chunk apart.
struct Place {
  Buffer buffer = Buffer::output;
  std::uint32_t chunk = 0;
  std::uint32_t slot = 0;
  friend bool operator==(const Place&, const Place&) = default;
};
constexpr Place input(std::uint32_t chunk) { return {Buffer::input, chunk, 0}; }
constexpr Place output(std::uint32_t chunk) { return {Buffer::output, chunk, 0}; }
constexpr Place scratch(std::uint32_t chunk, std::uint32_t slot = 0) { return {Buffer::scratch, chunk, slot}; }

struct Step {
  Action action;
  Rank peer;                 // whom to send to or receive from; -1 for copy and reduce
  Place from;                // unused by recv
  Place to;                  // unused by send
  std::uint32_t round;       // steps of one round run together; a step depends on steps of earlier rounds only, but for
                             // steps of its own rank and round that stand before it
  bool completes = false;    // this recv_reduce or reduce adds the last contribution: averages divide here
  std::uint32_t chunks = 1;  // how many consecutive chunks, the first of which `from` and `to` name, go together
};

// Ranks in a grid, numbered along its last dimension first: what neighbor_exchange works on, and what works along
// dimensions.
struct CartesianGrid {
  std::vector<Rank> dims = {};
  std::vector<bool> periodic = {};  // by dimension: whether its two ends are neighbours; empty: nowhere
};
constexpr Rank no_neighbor = -1;
// Who stands beside `rank` in direction 2d, where coordinate d is one less ("down"), or 2d + 1, where it is one more
// ("up"). The rank itself along a periodic dimension of one, the same rank both ways along one of two.
Rank neighbor(const CartesianGrid&, Rank rank, std::uint32_t direction);
// The other end of a direction: what a rank sends up comes to its neighbour from below.
constexpr std::uint32_t opposite(std::uint32_t direction) { return direction ^ 1; }

// Whether all ranks have a whole vector of one length, cut into chunks as the algorithm likes; else each has parts.
constexpr bool moves_whole_vector(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce ||
         collective == Collective::broadcast;
}

// What the buffers of a rank hold, by collective (w = world size, r = its rank, c = Schedule::chunks, freely chosen):
//   all_reduce      input c chunks               output c chunks
//   reduce          input c chunks               output c chunks on root, none elsewhere
//   broadcast       input c chunks on root       output c chunks
//   all_gather      input 1 chunk                output w chunks, chunk j from rank j       (c = w)
//   reduce_scatter  input w chunks               output 1 chunk: the reduced chunk r       (c = w)
//   all_to_all      input w chunks, j to rank j  output w chunks, j from rank j            (c = w)
//   gather          input 1 chunk                output w chunks on root                   (c = w)
//   scatter         input w chunks on root       output 1 chunk                            (c = w)
//   neighbor_exchange  input c chunks, j to the neighbour in direction j, output c chunks, j from it: its chunk
//                      opposite(j). Where there is no neighbour neither is touched.        (c = 2 x dimensions)
struct Schedule {
  std::string algorithm;  // "ring", "halving_doubling", …
  Collective collective = Collective::all_reduce;
  Rank world = 1;
  Rank root = 0;
  std::uint32_t chunks = 1;
  // In-place calls need links that take a whole slice before its receiver reads (TransportTraits::buffered_bytes);
  // other calls, and all calls where this is false, run even where every send is a rendezvous.
  bool buffered_in_place = false;
  // So many rounds in a row are the turns in which one rank serves the others: no transfer of theirs needs another, and
  // a slice goes to, or comes from, all whose turns these are before the next one does.
  std::uint32_t turns = 1;
  CartesianGrid grid = {};  // along whose dimensions it works, if it does
  // The program of one rank, in order; made when asked for, so that a large world costs nothing until it runs.
  std::function<std::vector<Step>(Rank)> program;
};

std::uint32_t input_chunks(const Schedule&, Rank);
std::uint32_t output_chunks(const Schedule&, Rank);

// ---- Builders. Each throws Error{usage} for a world or root that it cannot serve. Costs: docs/algorithms.md.

// all_reduce, reduce_scatter, all_gather; broadcast, reduce: a chain from or to the root
Schedule ring(Collective, Rank world, Rank root = 0);
Schedule halving_doubling(Collective, Rank world);  // all_reduce, reduce_scatter, all_gather; any world size
Schedule binomial_tree(Collective, Rank world, Rank root = 0);  // broadcast, reduce, gather, scatter, all_reduce
Schedule direct(Collective, Rank world, Rank root = 0);  // all: every pair talks at once; all_reduce in two rounds
Schedule one_round(Rank world);  // all_reduce of small vectors: everybody's whole vector to everybody
Schedule bidirectional_ring(Collective, Rank world);                 // all_reduce, reduce_scatter, all_gather
Schedule recursive_doubling(Collective, Rank world);                 // all_reduce of small vectors
Schedule swing(Collective, Rank world);                              // all_reduce, reduce_scatter, all_gather
Schedule swing_latency(Collective, Rank world);                      // all_reduce of small vectors
Schedule double_binary_tree(Collective, Rank world, Rank root = 0);  // broadcast, reduce, all_reduce
Schedule bine_tree(Collective, Rank world, Rank root = 0);           // broadcast, reduce, gather, scatter, all_reduce
// On a grid of `dims`, none for the most balanced one: all_reduce, reduce_scatter, all_gather.
Schedule multi_dimensional(Collective, Rank world, const std::vector<Rank>& dims = {});
Schedule torus(Collective, Rank world, const std::vector<Rank>& dims = {});
Schedule mesh(Collective, Rank world, const std::vector<Rank>& dims = {});
// Nodes of `ranks_per_node` consecutive ranks, 0 for about as many nodes as ranks in each; the last one may have fewer:
// all_reduce, reduce_scatter, all_gather.
Schedule hierarchical(Collective, Rank world, Rank ranks_per_node = 0);
Schedule round_robin(Collective, Rank world);                      // all_reduce, reduce_scatter, all_gather, all_to_all
Schedule parameter_server(Collective, Rank world, Rank root = 0);  // all_reduce, reduce, broadcast, gather, scatter
Schedule bruck(Collective, Rank world);                            // all_gather, all_to_all of small parts
Schedule pat(Collective, Rank world);                              // all_gather, reduce_scatter of small parts
// Parts to and from the neighbours in a grid; no dims: a line of all ranks. Never in place.
Schedule neighbor_exchange(Rank world, CartesianGrid grid = {});

// What to build: all that a schedule depends on.
struct ScheduleRequest {
  Collective collective = Collective::all_reduce;
  Rank world = 1;
  Rank root = 0;
  std::vector<Rank> dims = {};      // see Dims; empty: the algorithm's own choice
  std::vector<bool> periodic = {};  // of a periodic grid; empty: no dimension is
};

// What an algorithm takes behind its name and a colon.
enum class Dims : std::uint8_t {
  none,
  grid,          // torus:2x4x8: the sizes of a grid's dimensions; ranks are numbered along the last one first
  node,          // hierarchical:4: so many consecutive ranks make a node
  periodic_grid  // neighbor_exchange:2x4,periods=1x0: a grid, and 1 for each dimension whose ends are neighbours
};

// The builders by name: one row an algorithm.
struct Algorithm {
  std::string_view name;
  std::string_view summary;             // one line, for --help and docs
  std::vector<Collective> collectives;  // which ones it can build
  bool uneven;                          // whether parts may differ in size between ranks
  Dims dims;
  Schedule (*build)(const ScheduleRequest&);
};
std::span<const Algorithm> algorithms();

// An algorithm as flags and settings name it: `name` or `name:DIMS`, see Dims.
struct AlgorithmSpec {
  std::size_t index = 0;  // in algorithms()
  std::vector<Rank> dims = {};
  std::vector<bool> periodic = {};
  const Algorithm& algorithm() const { return algorithms()[index]; }
};
// Throws Error{usage} with the nearest right name for an unknown one, or for dims that it does not take. Whether dims
// suit a world shows when a schedule is built.
AlgorithmSpec parse_algorithm(std::string_view spec);
// What parse_algorithm reads as this.
std::string spec_text(const AlgorithmSpec&);
// Everything that can serve a collective in a world: all algorithms that build it, those on a grid with every division
// into two dimensions and the most even one into three, those by node with every size of nodes that divides the world.
std::vector<AlgorithmSpec> candidates(Collective, Rank world);
// Throws Error{usage} with the nearest right name and the list for an unknown name, or the collectives it does build.
const Algorithm& find_algorithm(std::string_view name, Collective);

// ---- Compilation: a schedule laid out flat for one rank, sizes and slices resolved.

struct Extent {
  std::size_t offset = 0;  // bytes from the start of the buffer
  std::size_t bytes = 0;
};

// Where chunks lie: one behind another within each buffer. For even splits see even_layout; uneven collectives (splits
// that differ by rank or direction) bring their own.
struct Layout {
  std::vector<Extent> input;
  std::vector<Extent> output;
  // gather and scatter: the bytes of every rank's part, of which ranks other than the root hold their own and may pass
  // on others'. Empty: all are as large as that.
  std::vector<std::size_t> parts = {};
};
// `count` elements of `element_bytes`: the whole vector for all_reduce, reduce and broadcast (split into `chunks` parts
// that differ by at most one element); else the elements of one chunk.
Layout even_layout(const Schedule&, Rank, std::size_t count, std::size_t element_bytes);

struct Instruction {
  Action action;
  bool completes;      // see Step
  bool first_on_link;  // first bytes to or from this peer in this operation: the message header goes in front
  Buffer from_buffer;
  Buffer to_buffer;
  Rank peer;
  std::uint32_t after;  // how many instructions of the *other* list must have completed before this one starts
  std::uint32_t round;  // for people: traces and drawings
  std::size_t from;     // byte offset in from_buffer
  std::size_t to;       // byte offset in to_buffer
  std::size_t bytes;
  std::size_t link_end = 0;  // bytes to or from this peer in this operation, up to the end of this instruction
  std::uint32_t link = 0;    // the peer's place in Program::bytes_to or bytes_from
  // 1 + the instruction of the other list that is its answer, 0 if none may be. Of a recv_reduce: the send that gives
  // its sum back to the sender. Of a send: the recv that takes that sum. See AnswersInPlace.
  std::uint32_t answer = 0;
};

// Two lists, each run in order, each waiting for the other only where data demands it (`after`): a blocked send never
// keeps its rank from receiving, so mutual sends cannot deadlock however little a transport buffers.
struct Program {
  std::vector<Instruction> sends;
  std::vector<Instruction> receives;  // recv, recv_reduce, copy, reduce
  std::size_t scratch_bytes = 0;
  std::vector<std::pair<Rank, std::size_t>> bytes_to;    // per peer that is sent to, in rank order
  std::vector<std::pair<Rank, std::size_t>> bytes_from;  // per peer that is received from
  // Whether it ends even where every send waits for its receiver: its sends may be lent (PeerMemory).
  bool runs_unbuffered = true;
  std::size_t ahead_bytes = 0;  // as CompileOptions, if its rounds are so far ahead
};

struct CompileOptions {
  std::size_t element_bytes = 4;      // slices end on element borders
  std::size_t slice_bytes = 1 << 17;  // largest transfer
  bool in_place = false;              // input is the same memory as output: see in_place_offset
  std::uint32_t unanswered = 0;       // messages to one peer whose answers may be outstanding; 0: there are no answers
  // What a rank sends before it needs what was sent to it meanwhile; 0: as little as the order below takes.
  std::size_t ahead_bytes = 0;
  // What a rank that sends to several at once, or to a server, may have sent beyond what it has received; 0: all of it.
  std::size_t lead_bytes = 0;
};
// Wavefront order: slice k of a chunk runs round r at step k + r, so that a large vector streams through all rounds at
// once and each slice is still in cache when the next round wants it. What was sent to a rank may be late by as much as
// it sends in one such step before its own link has nothing to do; where that is less than `ahead_bytes`, a round is
// more than one slice ahead of the next one, if all ranks send in all rounds (see compile.cc). Consecutive chunks of
// one step go as one transfer while they fit in a slice. A transfer of no bytes is dropped unless it is the first on
// its link: its header still travels, so that ranks that disagree find out. Throws Error{usage} for an in-place call
// whose chunks do not coincide, and for any of neighbor_exchange.
Program compile(const Schedule&, Rank, const Layout&, const CompileOptions&);

// For an in-place call: where the input buffer begins inside the output buffer, or the output inside the input
// (all_gather and gather: input is output chunk r; reduce_scatter and scatter: output is input chunk r; else both at
// 0).
struct InPlace {
  std::size_t input_in_output = 0;
  std::size_t output_in_input = 0;
};
InPlace in_place_offset(const Schedule&, Rank, const Layout&);

// ---- Verification.

struct VerifyOptions {
  std::size_t count = 0;  // elements (as even_layout counts them); 0 picks an uneven number, several slices long
  std::size_t slice_bytes = 64;
  std::size_t buffered_slices = 0;  // what a link holds before its receiver reads; 0, a rendezvous, is the hardest
  bool in_place = false;
  std::uint32_t unanswered = 8;  // see CompileOptions
  std::size_t ahead_bytes = 0;   // likewise
  std::size_t lead_bytes = 0;    // likewise
};

struct Verdict {
  bool ok = false;
  std::string problem;  // one sentence naming rank, round, chunk; empty when ok
  std::uint32_t rounds = 0;
  std::size_t most_bytes_sent = 0;  // by any rank, for the vector that was verified
  std::size_t vector_bytes = 0;     // its size, to put the bytes in proportion
  std::size_t most_messages = 0;    // sends of one rank, slices of one step counted once
  // How transfers share the links of a network takes a network: assess (ranvier/topology.h) reports both.
};

// Runs the compiled programs of all ranks symbolically: every output holds every contribution exactly once, every send
// meets its receive with the same bytes, nothing is read before it is written or overwritten while still needed, and no
// cycle of waits exists. Programs are deterministic (each list waits for one named thing at a time), so they form a
// Kahn process network: if one order of delivery ends, every order ends, with the same values (Kahn, 1974).
Verdict verify(const Schedule&, const VerifyOptions& = {});
// The same for programs and layouts at hand, one a rank, in elements of verified_element_bytes: uneven splits, or
// programs that did not come out of compile.
inline constexpr std::size_t verified_element_bytes = 4;
Verdict verify(const Schedule&, std::span<const Layout>, std::span<const Program>, const VerifyOptions&);

// The schedule as people draw it: rounds as rows, ranks as columns.
std::string draw(const Schedule&);

}  // namespace ranvier
