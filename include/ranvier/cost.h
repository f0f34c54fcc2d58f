// What a collective costs, by the α-β-γ model: time = α depth + o messages + β bytes + γ bytes added up, and between
// hosts that hold several ranks each another β for what these send together, over the one line that they share. The
// counts are taken from the schedule that runs, never from formulas of their own; the links' numbers are measured
// (LinkModel).
//
// R. Hockney: The communication challenge for MPP: Intel Paragon and Meiko CS-2. Parallel Computing 20 (1994), with the
// terms for adding and for each further message that Thakur et al. (docs/algorithms.md) and LogGP have: A. Alexandrov,
// M. F. Ionescu, K. E. Schauser, C. Scheiman: LogGP: incorporating long messages into the LogP model. SPAA 1995.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ranvier/schedule.h"
#include "ranvier/types.h"

namespace ranvier {

// What a rank has to do.
struct RankCost {
  double messages = 0;  // what is longer than a slice goes as several
  double bytes = 0;
  double reduced = 0;  // bytes added up, or moved within the rank's own memory by way of scratch
  double between = 0;  // bytes of its node to others, or from them
};

// A schedule's counts for vectors of any size. Made once; asking is cheap.
class ScheduleCost {
 public:
  // Looks at all programs of a world of up to 64 ranks, and at nine of a larger one, the root's (or rank 0's) among
  // them. `ranks_per_node`: of consecutive ranks on one host; of a larger world the root's host is looked at. 0: not
  // known.
  explicit ScheduleCost(const Schedule&, Rank ranks_per_node = 0);
  // depth() of it, from all programs, however many.
  static std::uint32_t depth(const Schedule&);

  // How many messages follow one another, each with what the one before it brought. At most the number of rounds, which
  // is what a world of more than 64 ranks gets; fewer where a rank only takes turns in serving others.
  std::uint32_t depth() const { return depth_; }
  // What they carry, each no more than a slice, for behind its first slice a message goes on while the next one starts.
  double path_bytes(std::size_t bytes, std::size_t slice_bytes) const;
  // `bytes`: of the whole vector; all parts together where each rank has one.
  // The most that any rank has of each, in the direction in which it has more: who sends and receives at once needs no
  // longer than the longer of both.
  RankCost busiest(std::size_t bytes, std::size_t slice_bytes) const;
  // The same where lines differ, as LinkModel has `lines` and `partner`, of which a rank's bytes and sums count the
  // share that is its own. Of a world whose ranks are all looked at.
  RankCost busiest_by_line(std::size_t bytes, std::size_t slice_bytes, std::span<const double> lines,
                           double partner) const;
  bool knows_each_of(std::size_t ranks) const { return ranks == ranks_.size(); }
  // What ranks have on average, in one direction, and a share of the bytes that the busiest one has beyond that; or
  // half of what the busiest one has, if that is more.
  RankCost shared(std::size_t bytes, std::size_t slice_bytes) const;
  // From how many other ranks one receives, at most; and from how many on other nodes.
  std::uint32_t partners() const { return partners_; }
  std::uint32_t distant_partners() const { return distant_partners_; }
  bool knows_nodes() const { return knows_nodes_; }
  // What one node sends to the others, or receives from them, whichever is more; of the node that has most.
  double between_nodes(std::size_t bytes) const {
    return static_cast<double>(bytes) / chunks_ * static_cast<double>(chunks_between_);
  }

 private:
  // Transfers of so many chunks each.
  struct Transfers {
    std::uint32_t chunks = 0;
    std::uint32_t times = 0;
  };
  struct OfRank {
    std::vector<Transfers> sends, receives;
    std::uint64_t reduced_chunks = 0;
    std::uint32_t partners = 0;
  };
  template <class Weigh>
  RankCost most(std::size_t bytes, std::size_t slice_bytes, const Weigh& weigh) const;
  static RankCost transfers(const std::vector<Transfers>&, double chunk, double slice_bytes);
  void look_at_nodes(const Schedule&, Rank ranks_per_node);

  std::uint32_t depth_ = 0;
  std::uint32_t path_chunks_ = 0;
  std::uint32_t chunks_ = 1;
  std::uint32_t partners_ = 0;
  std::uint32_t distant_partners_ = 0;
  bool knows_nodes_ = false;
  std::uint64_t chunks_between_ = 0;
  Rank first_ = 0;  // with whom `ranks_` begin
  std::vector<OfRank> ranks_;
};

// The links as all ranks of a world have them together, in seconds.
struct LinkModel {
  double latency = 0;  // α: from one rank's send to another's having it
  double message = 0;  // o: each message that a rank has to do with
  double byte = 0;     // β
  double reduce = 0;   // γ: what adding a byte costs more than storing it
  double partner = 0;  // by which share of β a byte is dearer for each rank but the first from which one receives
  double between = 0;  // β of a node's line to others, which its ranks share; 0: each rank has its own, and β says it
  bool crowded = false;  // ranks share cores, so that the work of all counts, not that of the busiest
  // By rank, which share of β a byte costs it, where lines of hosts differ and β is that of the slowest; empty: all.
  std::vector<double> lines = {};

  friend bool operator==(const LinkModel&, const LinkModel&) = default;
};

// How vectors are cut to stream over links of so many seconds a byte, where a slice may have `most` bytes: into what a
// link carries in a millisecond, at least 16 KiB. Whoever waits for a slice waits for all of it, and what has come
// meanwhile for later rounds shares his link with it. So where a slice takes many milliseconds, ranks that are late for
// a moment make others late for as long, who make others late. With short ones the rounds of a schedule overlap, and a
// lag is over a slice later. A power of two if `most` is one.
std::size_t slice_for(double seconds_per_byte, std::size_t most);
// CompileOptions::ahead_bytes over such links, which take `latency` seconds one way: what a link carries in ten
// milliseconds, but no more than `most`, so that short slices keep nobody waiting sooner than long ones. On paths of
// more than a millisecond, in 64 times what they take beyond that as well, which soon is all there is: rounds follow
// one another.
std::size_t ahead_for(double latency, double seconds_per_byte, std::size_t most);
// CompileOptions::lead_bytes over such links: what one carries in ten milliseconds and in a round trip, until what was
// lost has been missed and sent again. Queues in front of a line hold some tens of milliseconds. 0 where nothing was
// measured.
std::size_t lead_for(double latency, double seconds_per_byte);

// The part of a schedule's counts that decides how long it takes on these links: of the busiest rank, of all together
// where they share cores, or of the longest chain of messages. Shared, a core does the work of two ranks or more, so
// that of a single one counts half.
RankCost decisive(const LinkModel&, const ScheduleCost&, std::size_t bytes, std::size_t slice_bytes);
// Seconds.
double predict(const LinkModel&, const ScheduleCost&, std::size_t bytes, std::size_t slice_bytes);

}  // namespace ranvier
