#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ranvier/error.h"
#include "schedule/every_schedule.h"
#include "schedule/spelling.h"
#include "support/refusal.h"

namespace ranvier {
namespace {

using support::refusal;
using testing::HasSubstr;

TEST(Algorithms, AreFoundByNameAndBuildWhatTheyList) {
  for (const Algorithm& algorithm : algorithms()) {
    EXPECT_FALSE(algorithm.summary.empty());
    for (const Collective collective : algorithm.collectives) {
      EXPECT_EQ(&find_algorithm(algorithm.name, collective), &algorithm);
      const Schedule schedule = algorithm.build({.collective = collective, .world = 6});
      EXPECT_EQ(schedule.algorithm, algorithm.name);
      EXPECT_EQ(schedule.collective, collective);
      EXPECT_EQ(schedule.world, 6);
    }
  }
}

TEST(Algorithms, RefuseWhatTheyDoNotList) {
  for (const Algorithm& algorithm : algorithms())
    for (const Collective collective : all_collectives) {
      const auto& built = algorithm.collectives;
      if (std::find(built.begin(), built.end(), collective) != built.end()) continue;
      EXPECT_THAT(refusal([&] { algorithm.build({.collective = collective, .world = 4}); }),
                  HasSubstr(std::string(name_of(collective))));
      EXPECT_THAT(refusal([&] { find_algorithm(algorithm.name, collective); }),
                  HasSubstr(std::string(name_of(collective))));
    }
}

TEST(Algorithms, SuggestTheNearestNameAndTheOnesThatFit) {
  EXPECT_THAT(refusal([] { find_algorithm("rnig", Collective::all_reduce); }), HasSubstr("'ring'"));
  EXPECT_THAT(refusal([] { find_algorithm("swing", Collective::broadcast); }), HasSubstr("binomial_tree, direct"));
}

TEST(Algorithms, TakeDimsBehindTheirNames) {
  EXPECT_EQ(parse_algorithm("ring").algorithm().name, "ring");
  EXPECT_EQ(parse_algorithm("butterfly").algorithm().name, "halving_doubling");
  EXPECT_EQ(find_algorithm("butterfly", Collective::all_gather).name, "halving_doubling");
  EXPECT_EQ(one_spelling("butterfly:2"), "halving_doubling:2");
  EXPECT_EQ(one_spelling("butterflies"), "butterflies");
  EXPECT_TRUE(parse_algorithm("torus").dims.empty());
  const AlgorithmSpec torus = parse_algorithm("torus:2x4x8");
  EXPECT_EQ(torus.algorithm().name, "torus");
  EXPECT_EQ(torus.dims, (std::vector<Rank>{2, 4, 8}));
  EXPECT_EQ(parse_algorithm("hierarchical:4").dims, (std::vector<Rank>{4}));
}

TEST(Algorithms, SayWhatIsWrongWithDims) {
  EXPECT_THAT(refusal([] { parse_algorithm("trous:2x4"); }), HasSubstr("'torus'"));
  EXPECT_THAT(refusal([] { parse_algorithm("ring:2x4"); }), HasSubstr("write ring"));
  for (const char* const wrong : {"torus:", "torus:2x", "torus:x2", "torus:2x0", "torus:-2x4", "torus:2x4y",
                                  "torus:2,4", "torus:65536x65536", "torus:99999999999"})
    EXPECT_THAT(refusal([&] { parse_algorithm(wrong); }), HasSubstr("write torus:2x4")) << wrong;
  EXPECT_THAT(refusal([] { parse_algorithm("mesh:1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x4"); }), HasSubstr("16 at most"));
  EXPECT_THAT(refusal([] { parse_algorithm("hierarchical:2x4"); }), HasSubstr("write hierarchical:4"));
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.dims != Dims::grid && algorithm.dims != Dims::periodic_grid) continue;
    const std::string refused = refusal([&] {
      algorithm.build({.collective = algorithm.collectives.front(), .world = 6, .dims = {2, 4}});
    });
    EXPECT_THAT(refused, HasSubstr("2x4, which has 8 ranks"));
    EXPECT_THAT(refused, HasSubstr("the world has 6"));
    for (const std::vector<Rank>& wrong : {std::vector<Rank>{-2, -3}, {0, 6}, std::vector<Rank>(4, 2147483647)})
      EXPECT_THAT(
          refusal([&] { algorithm.build({.collective = algorithm.collectives.front(), .world = 6, .dims = wrong}); }),
          HasSubstr("give dims"));
  }
  for (const Rank nodes : {-3, -4})
    EXPECT_THAT(refusal([&] { hierarchical(Collective::all_reduce, 9, nodes); }), HasSubstr("give 1 or more"));
}

TEST(Algorithms, RefuseImpossibleWorldsAndRoots) {
  for (const Algorithm& algorithm : algorithms()) {
    const Collective collective = algorithm.collectives.front();
    EXPECT_THAT(refusal([&] { algorithm.build({.collective = collective, .world = 0}); }), HasSubstr("world of 0"));
  }
  EXPECT_THAT(refusal([] { binomial_tree(Collective::broadcast, 4, 4); }), HasSubstr("root 4"));
  EXPECT_THAT(refusal([] { direct(Collective::gather, 4, -1); }), HasSubstr("root -1"));
}

TEST(Candidates, HaveEveryGridOfTwoDimensionsAndTheMostEvenOneOfThree) {
  const auto toruses = [](Rank world) {
    std::vector<std::string> found;
    for (const AlgorithmSpec& spec : candidates(Collective::all_reduce, world))
      if (spec.algorithm().name == "torus") found.push_back(spec_text(spec));
    return found;
  };
  using testing::ElementsAre;
  EXPECT_THAT(toruses(6), ElementsAre("torus:2x3", "torus:3x2"));
  EXPECT_THAT(toruses(8), ElementsAre("torus:2x4", "torus:4x2", "torus:2x2x2"));
  EXPECT_THAT(toruses(10), ElementsAre("torus:2x5", "torus:5x2"));
  EXPECT_THAT(toruses(12), testing::Contains("torus:2x2x3"));
  EXPECT_THAT(toruses(1000), testing::Contains("torus:10x10x10"));
  EXPECT_EQ(toruses(64).back(), "torus:4x4x4");
}

TEST(Draw, ShowsRoundsAsRowsAndRanksAsColumns) {
  EXPECT_EQ(draw(ring(Collective::all_reduce, 3)),
            "all_reduce by ring: 3 ranks, 3 chunks, 4 rounds\n"
            "c>r: chunk c to rank r   c<r: from r   c+r: reduced with r's   !: complete   c=: copied   c+: reduced\n"
            "round  rank 0    rank 1    rank 2\n"
            "    0  0>1 2+2   1>2 0+0   2>0 1+1\n"
            "    1  2>1 1+2!  0>2 2+0!  1>0 0+1!\n"
            "    2  1>1 0<2   2>2 1<0   0>0 2<1\n"
            "    3  0>1 2<2   1>2 0<0   2>0 1<1\n");
}

TEST(Draw, CountsInWords) {
  EXPECT_THAT(draw(binomial_tree(Collective::broadcast, 2)),
              testing::StartsWith("broadcast by binomial_tree: 2 ranks, 1 chunk, 1 round\n"));
}

TEST(Draw, ShowsRunsOfChunks) {
  EXPECT_THAT(draw(halving_doubling(Collective::all_reduce, 4)), HasSubstr("2-3>1 0-1+1"));
}

}  // namespace
}  // namespace ranvier
