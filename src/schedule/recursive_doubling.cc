// Recursive doubling: in each round every rank exchanges its whole sum with a partner, and then holds the sum of twice
// as many ranks. The fewest rounds in which nobody talks to more than one other at a time, for small vectors.
//
// R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations in MPICH. Int. J. High
// Performance Computing Applications 19 (2005), section 4.5: the partners of round s are 2^s apart. `swing_latency`
// takes those of D. De Sensi, T. Bonato, D. Saam, T. Hoefler: Swing: Short-cutting rings for higher bandwidth
// allreduce. NSDI 2024: 1, 1, 3, 5, 11, 21, … apart, about a third less on a ring of ranks. It takes them in the
// opposite order, since only then all members of a group have made the same sums.
//
// Cost for n bytes over p ranks: log2 p rounds, in each of which a rank sends n bytes. Where p is no power of two, x
// ranks beyond the power of two below are folded: the first 2x ranks make pairs, of which one rank adds its vector to
// the other's before and gets the result after, two rounds more. Sums are made in scratch, at most 2n.
//
// All ranks end with the same bits: before a round both partners' groups hold one sum each, the same bits on all ranks
// of a group, and a (+) b on one side is b (+) a on the other.
#include <bit>

#include "schedule/steps.h"
#include "schedule/swing.h"

namespace ranvier {
namespace {

using namespace steps;

using PartnerOf = Rank (*)(Rank world, Rank rank, std::uint32_t round);

class RecursiveDoubling {
 public:
  RecursiveDoubling(Rank world, Rank rank, PartnerOf partner_of) : rank_(rank), partner_of_(partner_of) {
    participants_ = static_cast<Rank>(std::bit_floor(static_cast<std::uint32_t>(world)));
    folded_ = world - participants_;
    exchanges_ = static_cast<std::uint32_t>(std::countr_zero(static_cast<std::uint32_t>(participants_)));
  }

  std::vector<Step> build() && {
    const std::uint32_t first = folded_ > 0 ? 1 : 0;
    const bool in_pair = rank_ < 2 * folded_;
    if (in_pair && rank_ % 2 == 0)
      return {send(rank_ + 1, input(0), 0), recv(rank_ + 1, output(0), first + exchanges_)};
    if (in_pair) add(rank_ - 1, 0, false);
    const Rank self = in_pair ? rank_ / 2 : rank_ - folded_;
    for (std::uint32_t s = 0; s < exchanges_; ++s) {
      const Rank partner = partner_of_(participants_, self, s);
      const Rank peer = partner < folded_ ? 2 * partner + 1 : partner + folded_;
      steps_.push_back(send(peer, sum_, first + s));
      add(peer, first + s, s + 1 == exchanges_);
    }
    if (in_pair) steps_.push_back(send(rank_ - 1, output(0), first + exchanges_));
    return std::move(steps_);
  }

 private:
  // What was just sent may not have left yet, so that the new sum goes elsewhere: into scratch and at last into the
  // output, which in place is the input.
  void add(Rank peer, std::uint32_t round, bool last) {
    const bool sending_input = sum_.buffer == Buffer::input;
    const Place into = last && !sending_input ? output(0) : scratch(0, slot_);
    steps_.push_back(recv_reduce(peer, sum_, into, round, last));
    if (last && sending_input) steps_.push_back(copy(into, output(0), round));
    sum_ = into;
    slot_ = 1 - slot_;
  }

  Rank rank_;
  PartnerOf partner_of_;
  Rank participants_;
  Rank folded_;  // ranks that hand their vector to another
  std::uint32_t exchanges_;
  Place sum_ = input(0);
  std::uint32_t slot_ = 0;  // of scratch, for the next sum
  std::vector<Step> steps_;
};

Schedule build(std::string_view algorithm, Collective collective, Rank world, PartnerOf partner_of) {
  check(algorithm, collective, {Collective::all_reduce}, world, 0);
  return {.algorithm = std::string(algorithm),
          .collective = collective,
          .world = world,
          .chunks = 1,
          .program = [world, partner_of](Rank rank) {
            return world == 1 ? alone() : RecursiveDoubling(world, rank, partner_of).build();
          }};
}

}  // namespace

Schedule recursive_doubling(Collective collective, Rank world) {
  return build("recursive_doubling", collective, world,
               [](Rank, Rank rank, std::uint32_t round) -> Rank { return rank ^ (Rank{1} << round); });
}

Schedule swing_latency(Collective collective, Rank world) {
  // The farthest partners first: those of the last rounds make groups among themselves, those of the first do not.
  return build("swing_latency", collective, world, [](Rank participants, Rank rank, std::uint32_t round) {
    const auto rounds = static_cast<std::uint32_t>(std::countr_zero(static_cast<std::uint32_t>(participants)));
    return swing_partner(participants, rank, rounds - 1 - round);
  });
}

}  // namespace ranvier
