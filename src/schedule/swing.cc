// Swing: halving and doubling whose partners swing from one side to the other, so that messages take shorter ways on
// rings and tori.
//
// D. De Sensi, T. Bonato, D. Saam, T. Hoefler: Swing: Short-cutting rings for higher bandwidth allreduce. NSDI 2024,
// the bandwidth-optimal form; the latency-optimal one stands in recursive_doubling.cc. Its butterfly is the Bine
// butterfly of D. De Sensi et al.: Bine trees. SC 2025.
//
// The way of a chunk is a tree. Take the rounds backwards: its owner hands the chunk to its partner of the last round,
// then both to theirs of the round before, and so on; who has it already gets it no more. This is the all-gather. The
// reduce-scatter is the same film forwards. It covers every even world, not only powers of two. Trees of different
// owners are shifted, and mirrored for odd ones, so one tree tells all.
//
// An odd world leaves out its last rank. That one sends every other rank its chunk, and gets its own chunk's
// contributions, spread over the same rounds.
//
// Cost for n bytes over p ranks: reduce_scatter and all_gather ceil(log2 p) rounds (of p - 1 for odd p) and (p-1)/p n
// bytes sent by each rank, the least there is; all_reduce twice that. A power of two sends one message a round in
// all_reduce, where chunks are numbered so that what goes together lies together; elsewhere one for each run of chunks,
// at most p - 1 in all. reduce_scatter makes its sums in scratch: half of the chunks for a power of two, else fewer
// than all.
#include "schedule/swing.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <numeric>

#include "schedule/runs.h"
#include "schedule/steps.h"

namespace ranvier {
namespace {

using namespace steps;

// What all ranks have in common: the numbers of chunks, and who sends which of them in which round.
class Ways {
 public:
  Ways(Collective collective, Rank world) : even_(world - world % 2) {
    rounds_ = std::bit_width(static_cast<std::uint32_t>(even_ - 1));
    number_chunks(collective, world);
    reach_everybody();
  }

  Rank even() const { return even_; }  // ranks that swing
  std::uint32_t rounds() const { return rounds_; }
  std::uint32_t chunk(Rank owner) const { return chunk_[static_cast<std::size_t>(owner)]; }

  // The runs of chunks whose sums leave `rank` in round s. Both ends cut them alike.
  std::vector<Run> leaving(Rank rank, std::uint32_t s) const {
    if (numbered_by_rounds_) {  // those of all that its partner meets later
      const std::uint32_t chunks = 1u << (rounds_ - 1 - s);
      return {{chunk(swing_partner(even_, rank, s)) / chunks * chunks, chunks}};
    }
    std::vector<std::uint32_t> chunks;
    for (Rank owner = 0; owner < even_; ++owner) {
      const Rank distance = around(owner % 2 == 0 ? rank - owner : owner - rank, even_);
      if (leaves_in_[static_cast<std::size_t>(distance)] == s) chunks.push_back(chunk(owner));
    }
    std::sort(chunks.begin(), chunks.end());
    return runs_of(chunks);
  }

 private:
  // Only all_reduce may number its chunks as it likes.
  void number_chunks(Collective collective, Rank world) {
    chunk_.resize(static_cast<std::size_t>(world));
    std::iota(chunk_.begin(), chunk_.end(), 0u);
    numbered_by_rounds_ =
        collective == Collective::all_reduce && std::has_single_bit(static_cast<std::uint32_t>(world));
    if (!numbered_by_rounds_) return;
    const std::vector<Rank> owners = owners_from(0, 0);
    for (std::uint32_t i = 0; i < owners.size(); ++i) chunk_[static_cast<std::size_t>(owners[i])] = i;
  }

  // The ranks that meet from round s on, those that meet later next to each other: the same list for each of them.
  std::vector<Rank> owners_from(Rank rank, std::uint32_t s) const {
    if (s == rounds_) return {rank};
    std::vector<Rank> mine = owners_from(rank, s + 1);
    std::vector<Rank> others = owners_from(swing_partner(even_, rank, s), s + 1);
    if (others.front() < mine.front()) mine.swap(others);
    mine.insert(mine.end(), others.begin(), others.end());
    return mine;
  }

  // In which round a rank's sums of a chunk leave towards its owner, by how far it is from an even owner.
  void reach_everybody() {
    leaves_in_.assign(static_cast<std::size_t>(even_), rounds_);
    std::vector<Rank> reached{0};
    for (std::uint32_t s = rounds_; s-- > 0;)
      for (std::size_t i = 0, before = reached.size(); i < before; ++i) {
        const Rank next = swing_partner(even_, reached[i], s);
        auto& leaves = leaves_in_[static_cast<std::size_t>(next)];
        if (next == 0 || leaves < rounds_) continue;
        leaves = s;
        reached.push_back(next);
      }
  }

  Rank even_;
  std::uint32_t rounds_;
  bool numbered_by_rounds_ = false;       // those of ranks that meet from a round on are one run
  std::vector<std::uint32_t> chunk_;      // by owner
  std::vector<std::uint32_t> leaves_in_;  // by distance; rounds_ for the owner itself
};

class Swing {
 public:
  Swing(Collective collective, Rank world, Rank rank, const Ways& ways)
      : collective_(collective),
        ways_(ways),
        rank_(rank),
        even_(ways.even()),
        odd_one_(world % 2 == 1 ? even_ : -1),
        rounds_(ways.rounds()) {}

  std::vector<Step> build() && {
    if (collective_ == Collective::all_gather) {
      steps_.push_back(copy(input(0), output(chunk_of(rank_)), 0));
    } else {
      touched_.assign(static_cast<std::size_t>(odd_one_ < 0 ? even_ : even_ + 1), false);
      for (std::uint32_t s = 0; s < rounds_; ++s) reduce_round(s);
    }
    if (collective_ != Collective::reduce_scatter)
      for (std::uint32_t s = rounds_; s-- > 0;) gather_round(s);
    return std::move(steps_);
  }

 private:
  std::uint32_t own() const { return chunk(rank_); }
  std::uint32_t chunk(Rank owner) const { return ways_.chunk(owner); }

  Place sum(std::uint32_t chunk) const {
    return collective_ == Collective::reduce_scatter ? scratch(chunk) : output(chunk);
  }
  // Where the chunks of a run are together: an untouched one joins those that have sums as it is.
  Place so_far(const Run& run, std::uint32_t round) {
    const auto begin = touched_.begin() + run.first;
    const auto end = begin + run.chunks;
    if (std::find(begin, end, true) == end) return input(run.first);
    for (std::uint32_t each = run.first; each < run.first + run.chunks; ++each)
      if (!touched_[each]) steps_.push_back(copy(input(each), sum(each), round));
    std::fill(begin, end, true);
    return sum(run.first);
  }
  Place result() const { return collective_ == Collective::reduce_scatter ? output(0) : output(own()); }

  // Calls `visit(rank)` for the ranks that exchange with the odd one in round s.
  template <class Visit>
  void with_odd_one(std::uint32_t s, Visit visit) const {
    if (odd_one_ < 0) return;
    for (Rank rank = 0; rank < even_; ++rank)
      if (static_cast<std::uint32_t>(std::int64_t{rank} * rounds_ / even_) == s) visit(rank);
  }

  // One more contribution to this rank's own chunk.
  void add_to_own(Rank peer, std::uint32_t round, bool completes) {
    const bool touched = touched_[own()];
    steps_.push_back(
        recv_reduce(peer, touched ? sum(own()) : input(own()), completes ? result() : sum(own()), round, completes));
    touched_[own()] = true;
  }

  void reduce_round(std::uint32_t s) {
    with_odd_one(s, [&](Rank each) {
      if (rank_ != odd_one_ && rank_ != each) return;
      const Rank peer = rank_ == odd_one_ ? each : odd_one_;
      steps_.push_back(send(peer, input(chunk(peer)), s));
      add_to_own(peer, s, rank_ == odd_one_ && each == even_ - 1);
    });
    if (rank_ == odd_one_) return;
    const Rank partner = swing_partner(even_, rank_, s);
    for (const Run& run : ways_.leaving(rank_, s)) {
      const Place from = so_far(run, s);
      steps_.push_back(send(partner, from, s, run.chunks));
    }
    if (s + 1 == rounds_) return add_to_own(partner, s, true);
    for (const Run& run : ways_.leaving(partner, s)) {
      const Place from = so_far(run, s);
      steps_.push_back(recv_reduce(partner, from, sum(run.first), s, false, run.chunks));
      std::fill_n(touched_.begin() + run.first, run.chunks, true);
    }
  }

  // Backwards.
  void gather_round(std::uint32_t s) {
    const std::uint32_t round = (collective_ == Collective::all_reduce ? rounds_ : 0) + rounds_ - 1 - s;
    with_odd_one(s, [&](Rank each) {
      if (rank_ != odd_one_ && rank_ != each) return;
      const Rank peer = rank_ == odd_one_ ? each : odd_one_;
      steps_.push_back(send(peer, output(own()), round));
      steps_.push_back(recv(peer, output(chunk(peer)), round));
    });
    if (rank_ == odd_one_) return;
    const Rank partner = swing_partner(even_, rank_, s);
    for (const Run& run : ways_.leaving(partner, s))
      steps_.push_back(send(partner, output(run.first), round, run.chunks));
    for (const Run& run : ways_.leaving(rank_, s))
      steps_.push_back(recv(partner, output(run.first), round, run.chunks));
  }

  Collective collective_;
  const Ways& ways_;
  Rank rank_;
  Rank even_;
  Rank odd_one_;  // the one that is left over; -1: none
  std::uint32_t rounds_;
  std::vector<bool> touched_;  // by chunk: it holds more than this rank's own contribution
  std::vector<Step> steps_;
};

}  // namespace

Rank swing_partner(Rank world, Rank rank, std::uint32_t s) {
  const std::int64_t power = std::int64_t{1} << (s + 1);
  const std::int64_t ahead = (1 - (s % 2 == 0 ? -power : power)) / 3;
  const std::int64_t at = (rank + (rank % 2 == 0 ? ahead : -ahead)) % world;
  return static_cast<Rank>(at < 0 ? at + world : at);
}

Schedule swing(Collective collective, Rank world) {
  check("swing", collective, {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}, world, 0);
  const auto ways = world > 1 ? std::make_shared<const Ways>(collective, world) : nullptr;
  return {.algorithm = "swing",
          .collective = collective,
          .world = world,
          .chunks = chunk_of(world),
          .program = [collective, world, ways](Rank rank) {
            return ways ? Swing(collective, world, rank, *ways).build() : alone();
          }};
}

}  // namespace ranvier
