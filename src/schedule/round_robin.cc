// Round robin: in each round the ranks make pairs, as the players of a tournament do, until each has met each other
// once; nobody ever has two partners at a time.
//
// The rounds are a 1-factorization of the complete graph by the circle method, T. P. Kirkman: On a problem in
// combinations. Cambridge and Dublin Mathematical Journal 2 (1847): one player stays, the others move around. An odd
// world has an empty seat, whose partner waits.
//
// Cost for n bytes over p ranks: all pairs meet in p - 1 rounds (p for odd p). In reduce_scatter and all_to_all a rank
// hands each partner what is his, in all_gather its own chunk: (p-1)/p n bytes sent in p - 1 messages. all_reduce meets
// everybody twice, to reduce and to gather: 2(p-1)/p n bytes. The same messages as in `direct`, but in turn, for links
// that suffer from many at once.
#include "schedule/steps.h"

namespace ranvier {
namespace {

using namespace steps;

struct Tournament {
  Rank world;
  Rank rank;
  Rank seats = world + world % 2;  // the last one stays
  Rank rounds = seats - 1;

  // -1: nobody.
  Rank partner(Rank round) const {
    Rank other = rounds;
    if (rank == rounds) {
      // Whoever would meet himself: 2 i = round, around the circle.
      other = round % 2 == 0 ? round / 2 : (round + rounds) / 2;
    } else {
      other = around(round - rank, rounds);
      if (other == rank) other = rounds;
    }
    return other < world ? other : -1;
  }

  // Calls `meet(partner, round)` in turn.
  template <class Meet>
  void play(Meet meet) const {
    for (Rank round = 0; round < rounds; ++round)
      if (const Rank other = partner(round); other >= 0) meet(other, static_cast<std::uint32_t>(round));
  }
};

std::vector<Step> program(Collective collective, Rank world, Rank rank) {
  const Tournament tournament{.world = world, .rank = rank};
  const auto own = chunk_of(rank);
  std::vector<Step> steps;
  // At most; of large worlds growing would take as long as the rest.
  steps.reserve((collective == Collective::all_reduce ? 4 : 2) * static_cast<std::size_t>(world) + 1);
  const auto reduce_own = [&](Place into) {
    Rank met = 0;
    tournament.play([&](Rank other, std::uint32_t round) {
      steps.push_back(send(other, input(chunk_of(other)), round));
      steps.push_back(recv_reduce(other, met == 0 ? input(own) : into, into, round, met == world - 2));
      ++met;
    });
  };
  const auto exchange = [&](auto from, std::uint32_t first_round) {
    tournament.play([&](Rank other, std::uint32_t round) {
      steps.push_back(send(other, from(other), first_round + round));
      steps.push_back(recv(other, output(chunk_of(other)), first_round + round));
    });
  };
  switch (collective) {
    case Collective::all_reduce:
      reduce_own(output(own));
      exchange([&](Rank) { return output(own); }, static_cast<std::uint32_t>(tournament.rounds));
      break;
    case Collective::reduce_scatter:
      reduce_own(output(0));
      break;
    case Collective::all_gather:
      steps.push_back(copy(input(0), output(own), 0));
      exchange([&](Rank) { return output(own); }, 0);  // which is in the cache by then
      break;
    default:
      steps.push_back(copy(input(own), output(own), 0));
      exchange([](Rank other) { return input(chunk_of(other)); }, 0);
  }
  return steps;
}

}  // namespace

Schedule round_robin(Collective collective, Rank world) {
  check("round_robin", collective,
        {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather, Collective::all_to_all}, world, 0);
  return {
      .algorithm = "round_robin",
      .collective = collective,
      .world = world,
      .chunks = chunk_of(world),
      // In place, what a pair exchanges in all_to_all changes places: one of the two must be under way first.
      .buffered_in_place = collective == Collective::all_to_all && world > 1,
      .program = [collective, world](Rank rank) { return world == 1 ? alone() : program(collective, world, rank); }};
}

}  // namespace ranvier
