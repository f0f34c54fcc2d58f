#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ranvier/error.h"
#include "ranvier/topology.h"

namespace ranvier {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal(std::string_view spec, Rank world) {
  try {
    make_topology(spec, world);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(MakeTopology, TakesEverySpecAndNamesTheResultByIt) {
  for (const std::string_view spec : {"star", "ring", "fully_connected", "mesh:2x8", "mesh:16", "torus:4x4",
                                      "torus:2x2x4", "fat_tree:4", "fat_tree:4,oversubscription=2"}) {
    const Topology topology = make_topology(spec, 16);
    EXPECT_EQ(topology.name, spec);
    EXPECT_EQ(topology.world, 16);
  }
  EXPECT_EQ(make_topology("fat_tree:4,oversubscription=1", 16).name, "fat_tree:4");
}

TEST(MakeTopology, KnowsTheNamesThatItLists) {
  for (const std::string_view name : topology_names()) EXPECT_THAT(refusal(name, 0), Not(HasSubstr("unknown"))) << name;
}

TEST(MakeTopology, SuggestsTheNearestName) {
  EXPECT_THAT(refusal("tours:4x4", 16), AllOf(HasSubstr("'tours'"), HasSubstr("did you mean 'torus'?")));
  EXPECT_THAT(refusal("hypercube", 16), HasSubstr("fat_tree"));
}

TEST(MakeTopology, RefusesDimensionsOfAnotherWorldAndSuggestsSome) {
  EXPECT_THAT(refusal("torus:4x4", 8), AllOf(HasSubstr("torus:4x4"), HasSubstr("8 ranks"), HasSubstr("torus:2x4")));
  EXPECT_THAT(refusal("mesh:2x3", 12), HasSubstr("write mesh:3x4"));
  EXPECT_THAT(refusal("mesh:65536x65536x65536x65536x65536", 8), HasSubstr("do not multiply to the 8 ranks"));
}

TEST(MakeTopology, RefusesWhatAreNoDimensions) {
  for (const std::string_view spec : {"mesh", "mesh:x", "mesh:2x", "mesh:x4", "mesh:2xx4", "mesh:0x8", "mesh:-2x4",
                                      "mesh:2*4", "mesh:2.0x4", "mesh:99999999999x1", "mesh:2X4"})
    EXPECT_THAT(refusal(spec, 8), AllOf(HasSubstr("sizes of its dimensions"), HasSubstr("write mesh:2x4"))) << spec;
}

TEST(MakeTopology, RefusesWhatAShapeDoesNotTake) {
  EXPECT_THAT(refusal("star:4", 4), HasSubstr("write just 'star'"));
  EXPECT_THAT(refusal("ring:closed=yes", 4), HasSubstr("no setting 'closed'"));
  EXPECT_THAT(refusal("torus:2x2,closed=yes", 4), HasSubstr("no setting 'closed'"));
  EXPECT_THAT(refusal("fat_tree", 4), HasSubstr("write fat_tree:4"));
  EXPECT_THAT(refusal("fat_tree:four", 4), HasSubstr("'four'"));
  EXPECT_THAT(refusal("fat_tree:1", 4), HasSubstr("at least 2"));
  EXPECT_THAT(refusal("fat_tree:4,oversubscription=3", 4), HasSubstr("divides"));
  EXPECT_THAT(refusal("fat_tree:4,oversubscription=0", 4), HasSubstr("oversubscription=0"));
  EXPECT_THAT(refusal("fat_tree:4,oversubscribed=2", 4), HasSubstr("did you mean 'oversubscription'?"));
  EXPECT_THAT(refusal("star+ring", 4), HasSubstr("name one"));
  EXPECT_THAT(refusal("star:", 4), HasSubstr("'star:'"));
}

TEST(MakeTopology, RefusesImpossibleWorlds) {
  for (const std::string_view spec : {"star", "ring", "fully_connected", "fat_tree:4"}) {
    EXPECT_THAT(refusal(spec, 0), HasSubstr("0 ranks")) << spec;
    EXPECT_THAT(refusal(spec, 1 << 30), HasSubstr("it can have 1 to")) << spec;
  }
  EXPECT_THAT(refusal("torus:32768x32768", 1 << 30), HasSubstr("it can have 1 to"));
}

}  // namespace
}  // namespace ranvier
