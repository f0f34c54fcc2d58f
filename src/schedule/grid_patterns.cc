// What happens within one dimension of a grid.
#include "schedule/grid.h"
#include "schedule/steps.h"

namespace ranvier::grid {
namespace {

using namespace steps;

const std::vector<Run>& share(const Stage& stage, Rank member) {
  return stage.shares[static_cast<std::size_t>(member)];
}
Rank member(const Stage& stage, Rank at) { return stage.members[static_cast<std::size_t>(at)]; }
Rank size_of(const Stage& stage) { return static_cast<Rank>(stage.members.size()); }

// ---- All pairs at once, in the order that direct.cc explains.

void exchange_and_reduce(const Stage& stage, std::vector<Step>& steps) {
  const Rank members = size_of(stage);
  for (Rank d = 1; d < members; ++d) {
    const Rank to = around(stage.self + d, members);
    const Rank from = around(stage.self - d, members);
    for (const Run run : share(stage, to))
      steps.push_back(send(member(stage, to), stage.before(run.first), stage.round, run.chunks));
    for (const Run run : share(stage, stage.self))
      steps.push_back(recv_reduce(member(stage, from), d == 1 ? stage.before(run.first) : stage.result(run.first),
                                  stage.result(run.first), stage.round, stage.completes && d == members - 1,
                                  run.chunks));
  }
}

void exchange(const Stage& stage, std::vector<Step>& steps) {
  const Rank members = size_of(stage);
  for (Rank d = 1; d < members; ++d) {
    const Rank to = around(stage.self + d, members);
    const Rank from = around(stage.self - d, members);
    for (const Run run : share(stage, stage.self))
      steps.push_back(send(member(stage, to), stage.result(run.first), stage.round, run.chunks));
    for (const Run run : share(stage, from))
      steps.push_back(recv(member(stage, from), stage.result(run.first), stage.round, run.chunks));
  }
}

// ---- Neighbours only. The sums of a share begin at both ends of a stretch around its owner and meet there; the
// all-gather is the same film backwards. In round t they are `distance` = rounds - t from their owner, so that each
// link carries one share a round and direction.

struct Stretch {
  Rank members;
  bool around;  // a ring; else a line

  Rank below(Rank owner) const { return around ? members / 2 : owner; }  // how many members the sums from below pass
  Rank above(Rank owner) const { return around ? (members - 1) / 2 : members - 1 - owner; }
  Rank rounds() const { return around ? members / 2 : members - 1; }

  static constexpr Rank nobody = -1;
  Rank at(Rank place) const {
    if (around) return steps::around(place, members);
    return place < 0 || place >= members ? nobody : place;
  }
  // Whose sums from below (above) pass from the member at `place` to the next one up (down), `distance` from their
  // owner.
  Rank upwards(Rank place, Rank distance) const {
    if (at(place) == nobody) return nobody;
    const Rank owner = at(place + distance);
    return owner != nobody && distance <= below(owner) ? owner : nobody;
  }
  Rank downwards(Rank place, Rank distance) const {
    if (at(place) == nobody) return nobody;
    const Rank owner = at(place - distance);
    return owner != nobody && distance <= above(owner) ? owner : nobody;
  }
};

class Neighbours {
 public:
  Neighbours(const Stage& stage, bool around, std::vector<Step>& steps)
      : stage_(stage), stretch_{size_of(stage), around}, steps_(steps) {}

  void reduce_scatter() {
    round_ = stage_.round;
    for (Rank distance = stretch_.rounds(); distance >= 1; --distance, ++round_) {
      const Rank self = stage_.self;
      pass_on(self + 1, stretch_.upwards(self, distance),
              [&](Rank owner) { return stretch_.below(owner) == distance; });
      take_in(self - 1, stretch_.upwards(self - 1, distance), false, stretch_.above(self) == 0);
      pass_on(self - 1, stretch_.downwards(self, distance),
              [&](Rank owner) { return stretch_.above(owner) == distance; });
      take_in(self + 1, stretch_.downwards(self + 1, distance), stretch_.below(self) > 0, true);
    }
  }

  void all_gather() {
    round_ = stage_.round;
    for (Rank distance = 1; distance <= stretch_.rounds(); ++distance, ++round_) {
      const Rank self = stage_.self;
      hand_out(self - 1, stretch_.upwards(self - 1, distance));
      hear(self + 1, stretch_.upwards(self, distance));
      hand_out(self + 1, stretch_.downwards(self + 1, distance));
      hear(self - 1, stretch_.downwards(self, distance));
    }
  }

 private:
  Rank rank_at(Rank place) const { return member(stage_, stretch_.at(place)); }

  template <class Begins>
  void pass_on(Rank to, Rank owner, Begins begins) {
    if (owner == Stretch::nobody) return;
    for (const Run run : share(stage_, owner))
      steps_.push_back(
          send(rank_at(to), begins(owner) ? stage_.before(run.first) : stage_.partial(run.first), round_, run.chunks));
  }

  // Of this rank's own share: whether its sums from the other side have `met` it already, and whether these are the
  // last.
  void take_in(Rank from, Rank owner, bool met, bool last) {
    if (owner == Stretch::nobody) return;
    const bool mine = owner == stage_.self;
    for (const Run run : share(stage_, owner))
      steps_.push_back(recv_reduce(rank_at(from), mine && met ? stage_.result(run.first) : stage_.before(run.first),
                                   mine ? stage_.result(run.first) : stage_.partial(run.first), round_,
                                   stage_.completes && mine && last, run.chunks));
  }

  void hand_out(Rank to, Rank owner) {
    if (owner == Stretch::nobody) return;
    for (const Run run : share(stage_, owner))
      steps_.push_back(send(rank_at(to), stage_.result(run.first), round_, run.chunks));
  }

  void hear(Rank from, Rank owner) {
    if (owner == Stretch::nobody) return;
    for (const Run run : share(stage_, owner))
      steps_.push_back(recv(rank_at(from), stage_.result(run.first), round_, run.chunks));
  }

  const Stage& stage_;
  Stretch stretch_;
  std::vector<Step>& steps_;
  std::uint32_t round_ = 0;
};

template <bool around>
constexpr Pattern neighbours{
    .rounds =
        [](Rank members) {
          return static_cast<std::uint32_t>(Stretch{members, around}.rounds());
        },
    .reduce_scatter = [](const Stage& stage,
                         std::vector<Step>& steps) { Neighbours(stage, around, steps).reduce_scatter(); },
    .all_gather = [](const Stage& stage, std::vector<Step>& steps) { Neighbours(stage, around, steps).all_gather(); }};

}  // namespace

const Pattern all_pairs{.rounds = [](Rank members) -> std::uint32_t { return members > 1 ? 1 : 0; },
                        .reduce_scatter = &exchange_and_reduce,
                        .all_gather = &exchange};
const Pattern both_ways_around = neighbours<true>;
const Pattern along_a_line = neighbours<false>;

}  // namespace ranvier::grid
