// Parallel aggregated trees (PAT): every part has a binomial tree of its own, all of them the same but for where they
// begin, and what they send between the same two ranks in a round goes as one message. The farthest ranks come first,
// while a message is one part; the last round moves half of all parts, to the next rank only.
//
// S. Jeaugey: PAT: a new algorithm for all-gather and reduce-scatter operations at scale. arXiv:2506.20252 (2025),
// fully aggregated, its form for small parts: for large ones the paper works through subtrees one after the other,
// which bounds its buffers; here slices stream, and other algorithms are better. Any world: a tree leaves out whom it
// does not have.
//
// Cost for n bytes over p ranks: ceil(log2 p) rounds and messages, (p-1)/p n bytes. Parts that go together are copied
// together: n/2 of scratch for those that leave and as much for those that come; reduce_scatter, which is the
// all-gather backwards, makes its sums in scratch too. Parts must have the same size.
#include <bit>

#include "schedule/steps.h"

namespace ranvier {
namespace {

using namespace steps;

class AggregatedTrees {
 public:
  AggregatedTrees(Rank world, Rank rank) : world_(world), rank_(rank) {
    rounds_ = static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint32_t>(world - 1)));
  }

  std::vector<Step> all_gather() && {
    steps_.push_back(copy(input(0), output(chunk_of(rank_)), 0));
    const std::uint32_t nothing = chunk_of(world_);
    std::vector<std::uint32_t> packed;  // which chunks lie in `out`; this rank's own one stays there
    for (std::uint32_t round = 0; round < rounds_; ++round) {
      const Rank distance = Rank{1} << (rounds_ - 1 - round);
      const Rank to = around(rank_ + distance, world_);
      const Rank from = around(rank_ - distance, world_);
      const std::vector<std::uint32_t> leaving = passing(rank_, distance);
      const std::vector<std::uint32_t> coming = passing(from, distance);
      const auto parts = static_cast<std::uint32_t>(leaving.size());
      if (parts == 1) {
        steps_.push_back(send(to, output(leaving[0]), round));
        steps_.push_back(recv(from, output(coming[0]), round));
        continue;
      }
      packed.resize(parts, nothing);
      for (std::uint32_t i = 0; i < parts; ++i) {
        if (packed[i] != leaving[i]) steps_.push_back(copy(output(leaving[i]), scratch(i, out), round));
        packed[i] = leaving[i];
      }
      steps_.push_back(send(to, scratch(0, out), round, parts));
      steps_.push_back(recv(from, scratch(0, in), round, parts));
      for (std::uint32_t i = 0; i < parts; ++i) steps_.push_back(copy(scratch(i, in), output(coming[i]), round));
    }
    return std::move(steps_);
  }

  std::vector<Step> reduce_scatter() && {
    touched_.assign(static_cast<std::size_t>(world_), false);
    for (std::uint32_t round = 0; round < rounds_; ++round) {
      const Rank distance = Rank{1} << round;
      const Rank to = around(rank_ - distance, world_);
      const Rank from = around(rank_ + distance, world_);
      const std::vector<std::uint32_t> leaving = passing(to, distance);
      const std::vector<std::uint32_t> coming = passing(rank_, distance);
      const auto parts = static_cast<std::uint32_t>(leaving.size());
      if (parts == 1) {
        const bool last = round + 1 == rounds_;
        steps_.push_back(send(to, so_far(leaving[0]), round));
        steps_.push_back(
            recv_reduce(from, so_far(coming[0]), last ? output(0) : scratch(coming[0], sums), round, last));
        touched_[coming[0]] = true;
        continue;
      }
      for (std::uint32_t i = 0; i < parts; ++i) steps_.push_back(copy(so_far(leaving[i]), scratch(i, out), round));
      steps_.push_back(send(to, scratch(0, out), round, parts));
      steps_.push_back(recv(from, scratch(0, in), round, parts));
      for (std::uint32_t i = 0; i < parts; ++i) {
        if (!touched_[coming[i]]) steps_.push_back(copy(input(coming[i]), scratch(coming[i], sums), round));
        steps_.push_back(reduce(scratch(i, in), scratch(coming[i], sums), round, false));
        touched_[coming[i]] = true;
      }
    }
    return std::move(steps_);
  }

 private:
  enum Slot : std::uint32_t { sums, out, in };  // of scratch

  // The chunks that an all-gather hands on from `rank` to the one `distance` ahead: those whose owners are an even
  // number of distances behind, unless that would be the owner's whole turn or more.
  std::vector<std::uint32_t> passing(Rank rank, Rank distance) const {
    std::vector<std::uint32_t> chunks;
    for (Rank behind = 0; behind + distance < world_; behind += 2 * distance)
      chunks.push_back(chunk_of(around(rank - behind, world_)));
    return chunks;
  }

  Place so_far(std::uint32_t chunk) const { return touched_[chunk] ? scratch(chunk, sums) : input(chunk); }

  Rank world_;
  Rank rank_;
  std::uint32_t rounds_;
  std::vector<bool> touched_;  // by chunk: it holds more than this rank's own contribution
  std::vector<Step> steps_;
};

}  // namespace

Schedule pat(Collective collective, Rank world) {
  check("pat", collective, {Collective::all_gather, Collective::reduce_scatter}, world, 0);
  return {.algorithm = "pat",
          .collective = collective,
          .world = world,
          .chunks = chunk_of(world),
          .program = [collective, world](Rank rank) {
            if (world == 1) return alone();
            AggregatedTrees trees(world, rank);
            return collective == Collective::all_gather ? std::move(trees).all_gather()
                                                        : std::move(trees).reduce_scatter();
          }};
}

}  // namespace ranvier
