#include "replica/places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ranvier/synchronizer.h"
#include "support/refusal.h"

namespace ranvier::replica {
namespace {

using support::refusal;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Places, AreBlocksOfConsecutiveRanks) {
  const auto places = parse_places("node=3,rack=2", 8);
  EXPECT_THAT(places.at("node"), ElementsAre(0, 0, 0, 1, 1, 1, 2, 2));
  EXPECT_THAT(places.at("rack"), ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
}

TEST(Places, RanksOfOneHostAreANodeWhereverTheyStand) {
  EXPECT_THAT(by_host(std::vector<std::uint64_t>{7, 9, 7, 5, 9}), ElementsAre(0, 1, 0, 2, 1));
}

TEST(Places, TheLastLevelHoldsEverybody) {
  const std::vector<std::string> levels{"node", "world"};
  const auto groups = arrange(levels, {}, {0, 0, 1});
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_THAT(groups[0], ElementsAre(0, 1, 2));
  EXPECT_THAT(groups[1], ElementsAre(0, 0, 1));
  EXPECT_THAT(groups[2], ElementsAre(0, 0, 0));
}

TEST(Places, WhatMakesNoSenseIsRefusedInASentence) {
  const auto check = [](std::string_view sync, std::string_view place) {
    return refusal([&] { check_places(sync, place, 8); });
  };
  EXPECT_EQ(check("node:4", "node=2"), "nothing was refused");
  EXPECT_EQ(check("hierarchy:node=1,rack=2,world=4", "node=4,rack=2"), "nothing was refused");
  EXPECT_THAT(check("node:4", "node=9"), HasSubstr("1 to 8"));
  EXPECT_THAT(check("node:4", "node=0"), HasSubstr("1 to 8"));
  for (const auto text : {"2", "node", "=2", "node=2,", "node=2,4"})
    EXPECT_THAT(check("node:4", text), HasSubstr("write node=2 or node=4,rack=2")) << text;
  EXPECT_THAT(check("node:4", "node="), HasSubstr("'node=' does not place 8 workers"));
  EXPECT_EQ(check("node:4", "node=2,node=4"),
            "the places 'node=2,node=4' say twice how many of 'node' there are; say it once");
  EXPECT_THAT(check("hierarchy:node=1,rack=2,world=4", "node=4"),
              HasSubstr("--place rack=N for so many of them, place=\"rack=N\" in Python"));
  EXPECT_THAT(check("hierarchy:node=1,rack=2,world=4", "node=3,rack=2"), HasSubstr("share a group of 'node'"));
  EXPECT_THAT(check("node:4", "nod=2"), HasSubstr("did you mean 'node'"));
  EXPECT_THAT(check("node:4", "node=4,rack=2"),
              AllOf(HasSubstr("unknown level to place 'rack'"), HasSubstr("One of: node, world;"),
                    HasSubstr("names them, as hierarchy:node=1,rack=8,world=64")));
  EXPECT_THAT(check("local:4", "site=2"), HasSubstr("One of: node, world;"));
  EXPECT_EQ(check("local:4", "node=2"), "nothing was refused");
  EXPECT_THAT(check("hierarchy:node=1", "node=2"), HasSubstr("never exchange"));
}

}  // namespace
}  // namespace ranvier::replica
