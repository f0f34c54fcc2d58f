#include "base/rank_names.h"

#include <gtest/gtest.h>

#include "engine/call_history.h"
#include "engine/message_header.h"

namespace ranvier::engine {
namespace {

using Ranks = std::vector<Rank>;

TEST(RankNames, of_a_world_are_numbers) {
  EXPECT_EQ(RankNames()(3), "rank 3");
  EXPECT_EQ(RankNames().number(3), "3");
}

TEST(RankNames, of_a_group_say_both_numbers_where_they_differ) {
  const RankNames rank({0, 5, 2});
  EXPECT_EQ(rank(0), "rank 0");
  EXPECT_EQ(rank(1), "rank 5 (1 of its group)");
  EXPECT_EQ(rank.number(1), "5 (1 of its group)");
  EXPECT_EQ(rank(2), "rank 2");
  EXPECT_EQ(rank(7), "rank 7") << "not of the group: told as it came";
}

TEST(RankNames, of_a_group_of_a_group_are_of_the_world) {
  const Ranks half = world_ranks_of({2, 3}, {});
  EXPECT_EQ(half, (Ranks{2, 3}));
  EXPECT_EQ(world_ranks_of({1, 0}, half), (Ranks{3, 2}));
}

TEST(MessageHeader, names_no_root_where_there_is_none) {
  const MessageHeader ours{.collective = Collective::all_reduce, .size = 1};
  const MessageHeader theirs{.collective = Collective::all_reduce, .size = 2};
  const std::string text = disagreement(0, ours, 1, theirs, {.rank = RankNames({4, 6})}, "").what();
  EXPECT_EQ(text.find("root"), text.npos) << text;
  CallHistory history(2);
  history.add(CallStamp::of({.collective = Collective::all_gather, .dtype = DType::f32}));
  EXPECT_EQ(history.claim().last_call(), "all_gather #0 of f32");
}

TEST(MessageHeader, says_which_call_is_none_of_the_program) {
  const auto element = [](std::uint8_t number) { return "type " + std::to_string(number); };
  const MessageHeader ours{.collective = Collective::all_reduce, .label = agreement_label, .size = 3};
  const MessageHeader theirs{.collective = Collective::all_reduce, .label = {.element = 7}, .size = 2};
  const std::string text = disagreement(0, ours, 1, theirs, {.element = element}, "").what();
  EXPECT_NE(text.find("rank 0 runs all_reduce #0 (the ranks agreeing on what auto learned; RANVIER_LEARN=0"), text.npos)
      << text;
  EXPECT_EQ(text.find("elements of"), text.npos) << "a type that no program has: " << text;
  CallHistory history(2);
  history.add(CallStamp::of(ours));
  EXPECT_NE(history.claim().last_call().find("agreeing"), std::string::npos);
}

TEST(MessageHeader, names_the_call_that_an_operation_is_a_part_of) {
  const auto element = [](std::uint8_t number) { return "type " + std::to_string(number); };
  const MessageHeader ours{.collective = as_collective(Composite::sparse_all_reduce),
                           .dtype = DType::i64,
                           .label = {.element = 3},
                           .size = 128};
  const MessageHeader theirs{.collective = Collective::all_reduce, .label = {.element = 7}, .size = 2};
  const std::string text = disagreement(0, ours, 1, theirs, {.element = element}, "").what();
  EXPECT_NE(text.find("rank 0 runs sparse_all_reduce #0 by "), text.npos) << text;
  EXPECT_NE(text.find("rank 1 runs all_reduce #0 of u8 sum with 2 elements by "), text.npos) << text;
  EXPECT_NE(text.find("rank 0 with elements of type 3 and rank 1 of type 7"), text.npos) << text;
  CallHistory history(2);
  history.add(CallStamp::of({.collective = as_collective(Composite::monitored_barrier)}));
  EXPECT_EQ(history.claim().last_call(), "monitored_barrier #0");
}

TEST(MessageHeader, says_whose_bytes_its_size_are) {
  const MessageHeader ours{.collective = Collective::all_gather, .size = 24};
  MessageHeader theirs = ours;
  theirs.size = 0;
  const std::string text = disagreement(2, ours, 0, theirs, {}, "").what();
  EXPECT_NE(text.find("rank 2 runs all_gather #0 of u8 with 24 B from rank 0 to rank 2 by "), text.npos) << text;
  EXPECT_NE(text.find("rank 0 runs all_gather #0 of u8 with 0 B from rank 0 to rank 2 by "), text.npos) << text;
  const std::string waiting = disagreement(2, theirs, 0, {.collective = Collective::barrier}, {}, "").what();
  EXPECT_NE(waiting.find("rank 2 runs all_gather #0 of u8 by "), waiting.npos) << waiting;
  EXPECT_NE(waiting.find("rank 0 runs barrier #0 by "), waiting.npos) << waiting;
}

TEST(RankNames, stand_in_every_part_of_a_disagreement) {
  const Names names{.rank = RankNames({4, 6})};
  const MessageHeader ours{.collective = Collective::reduce, .root_or_dims = 0};
  const MessageHeader theirs{.collective = Collective::reduce, .root_or_dims = 1};
  const std::string text = disagreement(0, ours, 1, theirs, names, "").what();
  EXPECT_NE(text.find("rank 4 (0 of its group) runs"), text.npos) << text;
  EXPECT_NE(text.find("rank 6 (1 of its group) runs"), text.npos) << text;
  EXPECT_NE(text.find("root 6 (1 of its group)"), text.npos) << text;
  EXPECT_EQ(label_difference(0, {.shape = 1}, 1, {.shape = 2}, names),
            ", and the shapes of rank 4 (0 of its group) and rank 6 (1 of its group) differ");

  CallHistory history(2, names);
  history.add(CallStamp::of({.collective = Collective::broadcast, .root_or_dims = 1}));
  EXPECT_EQ(history.since(0, 0),
            "the last calls of rank 4 (0 of its group) are broadcast #0 of u8 with root 6 (1 of its group)");
}

}  // namespace
}  // namespace ranvier::engine
