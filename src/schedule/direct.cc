// Direct exchange: every pair that has something to say to each other does so at once.
//
// The one-round algorithms of E. Chan, M. Heimlich, A. Purkayastha, R. van de Geijn: Collective communication: theory,
// practice, and experience. Concurrency and Computation 19 (2007), on a network where every rank reaches every other.
// Rank r serves r+1, r+2, … in this order and hears r-1, r-2, …, so that no receiver is everybody's first.
//
// Cost for n bytes over p ranks: one round; all_reduce two, in which each rank reduces the chunk that it owns and then
// hands it to all: 2(p-1)/p n bytes sent by each rank, as many as in a ring, in 2(p-1) messages. With a root, the root
// alone sends or receives (p-1) messages: n bytes each in broadcast and reduce, which large worlds do better as trees.
#include "schedule/steps.h"

namespace ranvier {
namespace {

using namespace steps;

struct Direct {
  Rank world;
  Rank rank;
  Rank root;
  std::uint32_t own = chunk_of(rank);

  Rank ahead(Rank distance) const { return around(rank + distance, world); }
  Rank behind(Rank distance) const { return around(rank - distance, world); }

  // Everybody's chunk r meets at rank r, in `into`.
  void reduce_own_chunk(std::vector<Step>& steps, Place into, std::uint32_t round) const {
    for (Rank d = 1; d < world; ++d) {
      steps.push_back(send(ahead(d), input(chunk_of(ahead(d))), round));
      steps.push_back(recv_reduce(behind(d), d == 1 ? input(own) : into, into, round, d == world - 1));
    }
  }

  // The own chunk of output goes to everybody, and what the others have comes there, in rank order.
  void exchange_chunks(std::vector<Step>& steps, std::uint32_t round) const {
    for (Rank d = 1; d < world; ++d) {
      steps.push_back(send(ahead(d), output(own), round));
      steps.push_back(recv(behind(d), output(chunk_of(behind(d))), round));
    }
  }

  std::vector<Step> all_reduce() const {
    std::vector<Step> steps;
    reduce_own_chunk(steps, output(own), 0);
    exchange_chunks(steps, 1);
    return steps;
  }

  std::vector<Step> reduce_scatter() const {
    std::vector<Step> steps;
    reduce_own_chunk(steps, output(0), 0);
    return steps;
  }

  // What is sent is what was just copied, while it is in the cache: from the input, read once more, 4 to 64 MiB took two
  // ranks 1.2 to 1.5 times as long.
  std::vector<Step> all_gather() const {
    std::vector<Step> steps{copy(input(0), output(own), 0)};
    exchange_chunks(steps, 0);
    return steps;
  }

  // All sends stand before the first receive, which in place overwrites what one of them reads.
  std::vector<Step> all_to_all() const {
    std::vector<Step> steps{copy(input(own), output(own), 0)};
    for (Rank d = 1; d < world; ++d) steps.push_back(send(ahead(d), input(chunk_of(ahead(d))), 0));
    for (Rank d = 1; d < world; ++d) steps.push_back(recv(behind(d), output(chunk_of(behind(d))), 0));
    return steps;
  }

  std::vector<Step> broadcast() const {
    if (rank != root) return {recv(root, output(0), 0)};
    std::vector<Step> steps{copy(input(0), output(0), 0)};
    for (Rank d = 1; d < world; ++d) steps.push_back(send(ahead(d), input(0), 0));
    return steps;
  }

  std::vector<Step> reduce() const {
    if (rank != root) return {send(root, input(0), 0)};
    std::vector<Step> steps;
    for (Rank d = 1; d < world; ++d)
      steps.push_back(recv_reduce(behind(d), d == 1 ? input(0) : output(0), output(0), 0, d == world - 1));
    return steps;
  }

  std::vector<Step> gather() const {
    if (rank != root) return {send(root, input(0), 0)};
    std::vector<Step> steps{copy(input(0), output(own), 0)};
    for (Rank d = 1; d < world; ++d) steps.push_back(recv(behind(d), output(chunk_of(behind(d))), 0));
    return steps;
  }

  std::vector<Step> scatter() const {
    if (rank != root) return {recv(root, output(0), 0)};
    std::vector<Step> steps{copy(input(own), output(0), 0)};
    for (Rank d = 1; d < world; ++d) steps.push_back(send(ahead(d), input(chunk_of(ahead(d))), 0));
    return steps;
  }

  std::vector<Step> build(Collective collective) const {
    switch (collective) {
      case Collective::all_reduce:
        return all_reduce();
      case Collective::reduce_scatter:
        return reduce_scatter();
      case Collective::all_gather:
        return all_gather();
      case Collective::all_to_all:
        return all_to_all();
      case Collective::broadcast:
        return broadcast();
      case Collective::reduce:
        return reduce();
      case Collective::gather:
        return gather();
      default:
        return scatter();
    }
  }
};

}  // namespace

Schedule direct(Collective collective, Rank world, Rank root) {
  check("direct", collective,
        {Collective::all_reduce, Collective::reduce, Collective::broadcast, Collective::all_gather,
         Collective::reduce_scatter, Collective::all_to_all, Collective::gather, Collective::scatter},
        world, root);
  const bool whole = collective == Collective::broadcast || collective == Collective::reduce;
  return {.algorithm = "direct",
          .collective = collective,
          .world = world,
          .root = root,
          .chunks = whole ? 1 : static_cast<std::uint32_t>(world),
          // In place, what a pair exchanges in all_to_all changes places: one of the two must be under way first.
          .buffered_in_place = collective == Collective::all_to_all && world > 1,
          .program = [collective, world, root](Rank rank) {
            if (world == 1) return alone();
            return Direct{.world = world, .rank = rank, .root = root}.build(collective);
          }};
}

}  // namespace ranvier
