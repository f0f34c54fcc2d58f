// What compilation promises to the executor, beyond what verify proves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "ranvier/error.h"
#include "schedule/every_schedule.h"

namespace ranvier {
namespace {

Program compiled(const Schedule& schedule, Rank rank, std::size_t count, const CompileOptions& options) {
  return compile(schedule, rank, even_layout(schedule, rank, count, options.element_bytes), options);
}

std::vector<Instruction> all_of(const Program& program) {
  std::vector<Instruction> all = program.sends;
  all.insert(all.end(), program.receives.begin(), program.receives.end());
  return all;
}

long copies_in(const Program& program) {
  return std::count_if(program.receives.begin(), program.receives.end(),
                       [](const Instruction& step) { return step.action == Action::copy; });
}

TEST(EvenLayout, DiffersByAtMostOneElementAndLeavesNoneOut) {
  for (const std::size_t count : {0, 1, 4, 5, 6, 41}) {
    const Layout layout = even_layout(ring(Collective::all_reduce, 5), 3, count, 8);
    ASSERT_EQ(layout.input.size(), 5u);
    std::size_t end = 0;
    for (const Extent& extent : layout.input) {
      EXPECT_EQ(extent.offset, end);
      EXPECT_GE(extent.bytes, count / 5 * 8);
      EXPECT_LE(extent.bytes, (count + 4) / 5 * 8);
      end += extent.bytes;
    }
    EXPECT_EQ(end, count * 8);
  }
}

TEST(EvenLayout, GivesEachRankTheBuffersOfItsCollective) {
  const Schedule gather = direct(Collective::gather, 4, 2);
  EXPECT_EQ(even_layout(gather, 2, 10, 4).output.size(), 4u);
  EXPECT_EQ(even_layout(gather, 2, 10, 4).output[3].offset, 120u);
  EXPECT_EQ(even_layout(gather, 1, 10, 4).output.size(), 0u);
  const Schedule scatter = direct(Collective::scatter, 4, 2);
  EXPECT_EQ(even_layout(scatter, 2, 10, 4).input.size(), 4u);
  EXPECT_EQ(even_layout(scatter, 1, 10, 4).input.size(), 0u);
  EXPECT_EQ(even_layout(direct(Collective::broadcast, 4, 2), 1, 10, 4).input.size(), 0u);
}

TEST(Compile, CutsSlicesOnElementBordersAndNoLargerThanAsked) {
  for (const std::size_t element : {1, 2, 4, 8})
    for (const std::size_t slice : {1, 10, 16, 100})
      for_each_schedule(5, 0, [&](const Schedule& schedule) {
        for (const Instruction& step :
             all_of(compiled(schedule, 2, 29, {.element_bytes = element, .slice_bytes = slice}))) {
          EXPECT_LE(step.bytes, std::max(slice, element));
          EXPECT_EQ(step.bytes % element, 0u);
          EXPECT_EQ(step.from % element, 0u);
          EXPECT_EQ(step.to % element, 0u);
        }
      });
}

TEST(Compile, CountsTheBytesOfEachLinkInRankOrder) {
  const Program program = compiled(direct(Collective::all_to_all, 4), 2, 10, {.slice_bytes = 16});
  const std::vector<std::pair<Rank, std::size_t>> expected{{0, 40}, {1, 40}, {3, 40}};
  EXPECT_EQ(program.bytes_to, expected);
  EXPECT_EQ(program.bytes_from, expected);
}

TEST(Compile, SendsOneEmptyMessageOnEachLinkOfAnEmptyVector) {
  for_each_schedule(6, 0, [](const Schedule& schedule) {
    for (Rank rank = 0; rank < 6; ++rank) {
      const Program program = compiled(schedule, rank, 0, {});
      EXPECT_EQ(program.sends.size(), program.bytes_to.size()) << name(schedule);
      EXPECT_EQ(program.receives.size(), program.bytes_from.size()) << name(schedule);
      for (const Instruction& step : all_of(program)) {
        EXPECT_TRUE(step.first_on_link);
        EXPECT_EQ(step.bytes, 0u);
      }
    }
  });
}

TEST(Compile, MarksTheFirstTransferOfEachLink) {
  for_each_schedule(7, 3, [](const Schedule& schedule) {
    for (Rank rank = 0; rank < 7; ++rank) {
      const Program program = compiled(schedule, rank, 50, {.slice_bytes = 16});
      for (const auto* list : {&program.sends, &program.receives}) {
        std::set<Rank> seen;
        for (const Instruction& step : *list)
          EXPECT_EQ(step.first_on_link, step.peer >= 0 && seen.insert(step.peer).second) << name(schedule);
      }
    }
  });
}

TEST(Compile, CopiesNothingOntoItself) {
  for_each_schedule(4, 1, [](const Schedule& schedule) {
    const bool by_rank = schedule.collective == Collective::gather || schedule.collective == Collective::scatter;
    if (by_rank && schedule.algorithm.ends_with("_tree")) return;              // inner ranks do copy
    if (schedule.algorithm == "bruck" || schedule.algorithm == "pat") return;  // these pack what goes together
    if (!works_in_place(schedule)) return;
    for (Rank rank = 0; rank < 4; ++rank)
      EXPECT_EQ(copies_in(compiled(schedule, rank, 40, {.in_place = true})), 0) << name(schedule);
  });
  for_each_schedule(1, 0, [](const Schedule& schedule) {
    if (!works_in_place(schedule)) return;
    EXPECT_EQ(all_of(compiled(schedule, 0, 40, {.in_place = true})).size(), 0u) << name(schedule);
    EXPECT_EQ(copies_in(compiled(schedule, 0, 40, {.in_place = false})), 1) << name(schedule);
  });
  EXPECT_EQ(copies_in(compiled(ring(Collective::all_gather, 4), 2, 40, {.in_place = false})), 1);
}

TEST(Compile, StreamsSlicesThroughTheRounds) {
  const Program program = compiled(ring(Collective::all_reduce, 4), 0, 4 * 8 * 4, {.slice_bytes = 16});
  constexpr std::uint32_t slices = 8;
  ASSERT_EQ(program.sends.size(), 6 * slices);
  const auto first_of_round_1 =
      std::find_if(program.sends.begin(), program.sends.end(), [](const Instruction& send) { return send.round == 1; });
  // Slice 0 goes on to round 1 as soon as it came in, while most of round 0 has still to leave.
  EXPECT_EQ(first_of_round_1 - program.sends.begin(), 2);
  EXPECT_EQ(first_of_round_1->after, 1u);
  std::vector<std::uint32_t> slice_of_round(6);
  std::uint32_t wave = 0;
  for (const Instruction& send : program.sends) {
    const std::uint32_t next = slice_of_round[send.round]++ + send.round;
    EXPECT_GE(next, wave);
    wave = next;
  }
}

TEST(Compile, SendsConsecutiveChunksTogetherWhileTheyFit) {
  const Schedule schedule = halving_doubling(Collective::all_reduce, 8);
  EXPECT_EQ(compiled(schedule, 3, 80, {.slice_bytes = 1024}).sends.size(), 6u);
  // A chunk has 40 bytes: two fit in a slice of 100.
  EXPECT_EQ(compiled(schedule, 3, 80, {.slice_bytes = 100}).sends.size(), 2u * (2 + 1 + 1));
  EXPECT_EQ(compiled(schedule, 3, 80, {.slice_bytes = 20}).sends.size(), 2u * 2 * (4 + 2 + 1));
}

TEST(Compile, NeedsNoMoreInstructionsThanSlices) {
  const std::size_t count = (64u << 20) / 4;
  const Program program = compiled(ring(Collective::all_reduce, 8), 5, count, {.slice_bytes = 128 << 10});
  EXPECT_EQ(program.sends.size(), 14u * 64);
  EXPECT_EQ(program.receives.size(), 14u * 64);
}

TEST(Compile, LetsWhatTwoRanksSendEachOtherBeAnswered) {
  for (const Schedule& schedule : {ring(Collective::all_reduce, 2), halving_doubling(Collective::all_reduce, 2)}) {
    const Program program = compiled(schedule, 0, 160, {.slice_bytes = 32, .unanswered = 8});
    ASSERT_EQ(program.sends.size(), 20u);
    for (const Instruction& send : program.sends) {
      if (send.answer == 0) continue;
      const Instruction& sum = program.receives[send.answer - 1];
      EXPECT_EQ(sum.action, Action::recv);
      EXPECT_EQ(sum.to, send.from);
    }
    const auto has_answer = [](const Instruction& each) { return each.answer != 0; };
    EXPECT_EQ(std::ranges::count_if(program.sends, has_answer), 10);
    EXPECT_EQ(std::ranges::count_if(program.receives, has_answer), 10);
  }
  const Program none = compiled(ring(Collective::all_reduce, 2), 0, 160, {.slice_bytes = 32});
  for (const Instruction& each : all_of(none)) EXPECT_EQ(each.answer, 0u);
  const Program other = compiled(direct(Collective::all_to_all, 2), 0, 160, {.slice_bytes = 32, .unanswered = 8});
  for (const Instruction& each : all_of(other)) EXPECT_EQ(each.answer, 0u);
}

// Twenty chunks of rank 0 in one round, summed and given back by rank 1 in the next, the last one first. While eight
// answers are unread no more can be sent; and rank 0 may well send all before it reads the first. So only the last
// eight may be answered.
TEST(Compile, LetsNothingBeAnsweredWhoseMemoryIsWantedBeforeTheAnswerIsRead) {
  Schedule schedule;
  schedule.collective = Collective::all_reduce;
  schedule.world = 2;
  schedule.chunks = 20;
  schedule.program = [](Rank rank) {
    std::vector<Step> steps;
    for (std::uint32_t chunk = 0; chunk < 20; ++chunk)
      steps.push_back(rank == 0 ? Step{Action::send, 1, input(chunk), {}, 0}
                                : Step{Action::recv_reduce, 0, input(chunk), output(chunk), 0, true});
    for (std::uint32_t chunk = 20; chunk-- > 0;)
      steps.push_back(rank == 0 ? Step{Action::recv, 1, {}, output(chunk), 1}
                                : Step{Action::send, 0, output(chunk), {}, 1});
    return steps;
  };
  ASSERT_TRUE(verify(schedule, {.count = 160, .slice_bytes = 32}).ok);
  const Program program = compiled(schedule, 0, 160, {.slice_bytes = 32, .unanswered = 8});
  ASSERT_EQ(program.sends.size(), 20u);
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(program.sends[i].answer != 0, i >= 12) << i;

  // The verifier finds out what would happen otherwise.
  const std::vector<Layout> layouts{even_layout(schedule, 0, 160, 4), even_layout(schedule, 1, 160, 4)};
  const Program other = compiled(schedule, 1, 160, {.slice_bytes = 32, .unanswered = 8});
  std::vector<Program> programs{program, other};
  const VerifyOptions options{.slice_bytes = 32};
  EXPECT_TRUE(verify(schedule, layouts, programs, options).ok);
  programs[0].sends[11].answer = 9;
  EXPECT_THAT(verify(schedule, layouts, programs, options).problem, testing::HasSubstr("deadlock"));
}

// How much a rank sends between a transfer and the one that needs what its peer sent at the same place of the same
// program, at least; of all such transfers but those of the first and the last chunk's worth, where rounds are fewer.
std::size_t least_sent_meanwhile(const Program& program) {
  const auto& sends = program.sends;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (std::size_t i = sends.size() / 4; i < sends.size() * 3 / 4; ++i) {
    if (sends[i].after == 0) continue;
    std::size_t meanwhile = 0;
    for (std::size_t between = sends[i].after; between < i; ++between) meanwhile += sends[between].bytes;
    least = std::min(least, meanwhile);
  }
  return least;
}

// In these all ranks do the same at the same time, and each sends in the order in which it receives.
TEST(Compile, LetsRoundsBeAsFarAheadAsAskedFor) {
  constexpr std::size_t slice = 16;
  for (const Rank world : {2, 3, 4, 8})
    for (const std::size_t ahead : {4 * slice, 20 * slice, 64 * slice}) {
      const Schedule schedule = ring(Collective::all_reduce, world);
      const auto count = static_cast<std::size_t>(world) * 1000;
      const Program program = compiled(schedule, 1, count, {.slice_bytes = slice, .ahead_bytes = ahead});
      EXPECT_GE(least_sent_meanwhile(program) + slice, ahead) << world;
      EXPECT_LT(least_sent_meanwhile(compiled(schedule, 1, count, {.slice_bytes = slice})), 2 * world * slice);
    }
}

std::vector<std::size_t> order_of(const Program& program) {
  std::vector<std::size_t> order;
  for (const Instruction& send : program.sends) order.push_back(send.from);
  return order;
}

// A rank of a tree that waits for the round before has nothing else to send meanwhile, and large worlds enough.
TEST(Compile, LetsNoRoundsBeAheadWhereThatWouldKeepRanksWaiting) {
  const auto alike = [](const Schedule& schedule, std::size_t count) {
    for (Rank rank = 0; rank < std::min<Rank>(schedule.world, 5); ++rank)
      if (order_of(compiled(schedule, rank, count, {.slice_bytes = 16})) !=
          order_of(compiled(schedule, rank, count, {.slice_bytes = 16, .ahead_bytes = 10'000})))
        return false;
    return true;
  };
  EXPECT_FALSE(alike(ring(Collective::all_reduce, 4), 4000));
  EXPECT_FALSE(alike(halving_doubling(Collective::all_reduce, 4), 4000));
  EXPECT_TRUE(alike(ring(Collective::all_reduce, 4), 16)) << "each chunk is a slice";
  EXPECT_TRUE(alike(double_binary_tree(Collective::all_reduce, 7), 4000));
  EXPECT_TRUE(alike(ring(Collective::broadcast, 5), 4000));
  EXPECT_TRUE(alike(ring(Collective::all_reduce, 48), 48'000));
}

// By how much what a rank has sent, at most, is beyond what it has received for certain by then.
std::size_t most_sent_ahead(const Program& program) {
  std::vector<std::size_t> received(1);
  for (const Instruction& each : program.receives) {
    const bool came = each.action == Action::recv || each.action == Action::recv_reduce;
    received.push_back(received.back() + (came ? each.bytes : 0));
  }
  std::size_t sent = 0, most = 0;
  for (const Instruction& each : program.sends) {
    sent += each.bytes;
    most = std::max(most, sent - std::min(sent, received[each.after]));
  }
  return most;
}

// Where all send to all at once, what waits in front of a rank's line is what the others are ahead of it.
TEST(Compile, SendsNoMoreAheadToManyAtOnceThanIsAllowed) {
  constexpr std::size_t slice = 16, count = 4000;
  for (const Rank world : {3, 8, 40})
    for (const Schedule& schedule : {one_round(world), direct(Collective::all_to_all, world)})
      for (const std::size_t lead : {slice, 20 * slice, 200 * slice})
        for (const Rank rank : {Rank{0}, Rank{1}, world - 1}) {
          const auto wave = static_cast<std::size_t>(world - 1) * slice;
          const auto most =
              most_sent_ahead(compiled(schedule, rank, count, {.slice_bytes = slice, .lead_bytes = lead}));
          EXPECT_LE(most, std::max(lead + wave, 2 * wave)) << schedule.algorithm << world;
          EXPECT_GE(most, std::max(lead, 2 * wave)) << schedule.algorithm << world;
        }
  // Nor where rounds are far ahead of each other because a path seemed long.
  const auto far =
      compiled(direct(Collective::all_reduce, 8), 1, 8 * count, {.slice_bytes = slice, .ahead_bytes = 1 << 20});
  const auto near = compiled(direct(Collective::all_reduce, 8), 1, 8 * count,
                             {.slice_bytes = slice, .ahead_bytes = 1 << 20, .lead_bytes = 20 * slice});
  EXPECT_GT(most_sent_ahead(far), std::size_t{10'000});
  EXPECT_LE(most_sent_ahead(near), 2 * 20 * slice);
  // What all send to a server is ahead of what it sends back, whoever's turn comes first there.
  const auto of_server = [](Rank rank, std::size_t lead) {
    return most_sent_ahead(
        compiled(parameter_server(Collective::all_reduce, 5), rank, count, {.slice_bytes = slice, .lead_bytes = lead}));
  };
  for (const Rank worker : {1, 2, 3, 4}) {
    EXPECT_EQ(of_server(worker, 0), 4 * count);
    EXPECT_LE(of_server(worker, 16 * slice), (4 + 1 + 1) * slice) << "the answer is of a wave later";
  }
  EXPECT_EQ(of_server(0, 16 * slice), of_server(0, 0)) << "the server itself";
  // Who sends to one at a time waits for what comes by itself, and so do trees.
  for (const Schedule& schedule :
       {ring(Collective::all_reduce, 8), binomial_tree(Collective::all_reduce, 8), one_round(2)})
    EXPECT_EQ(most_sent_ahead(compiled(schedule, 1, count, {.slice_bytes = slice, .lead_bytes = slice})),
              most_sent_ahead(compiled(schedule, 1, count, {.slice_bytes = slice})));
}

TEST(Compile, RefusesAnInPlaceCallWhoseChunksDoNotCoincide) {
  const Schedule schedule = direct(Collective::all_to_all, 2);
  const Layout layout{{{0, 4}, {4, 8}}, {{0, 4}, {4, 12}}};
  EXPECT_NO_THROW(compile(schedule, 0, layout, {}));
  try {
    compile(schedule, 0, layout, {.in_place = true});
    FAIL() << "compiled";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), testing::HasSubstr("in-place all_to_all"));
  }
}

TEST(InPlace, IsTheOwnPartOfTheLargerBuffer) {
  const auto offset = [](const Schedule& schedule, Rank rank) {
    return in_place_offset(schedule, rank, even_layout(schedule, rank, 10, 4));
  };
  EXPECT_EQ(offset(ring(Collective::all_gather, 4), 3).input_in_output, 120u);
  EXPECT_EQ(offset(ring(Collective::reduce_scatter, 4), 3).output_in_input, 120u);
  EXPECT_EQ(offset(ring(Collective::all_reduce, 4), 3).input_in_output, 0u);
  EXPECT_EQ(offset(direct(Collective::gather, 4, 1), 3).input_in_output, 0u);
}

}  // namespace
}  // namespace ranvier
