// The verifier proves everything that the builders build.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "schedule/every_schedule.h"
#include "support/sanitized.h"

namespace ranvier {
namespace {

// Slices of two elements, so that even large worlds verify quickly.
constexpr std::size_t slice_bytes = 8;

void expect_proven(const Schedule& schedule, const VerifyOptions& options) {
  const Verdict verdict = verify(schedule, options);
  EXPECT_TRUE(verdict.ok) << name(schedule) << ", " << name(options) << ": " << verdict.problem;
  EXPECT_EQ(verdict.problem, "");
}

class EveryWorld : public testing::TestWithParam<Rank> {};

INSTANTIATE_TEST_SUITE_P(UpTo64, EveryWorld, testing::Range(1, support::sanitized ? 17 : 65));

TEST_P(EveryWorld, IsServedByEverySchedule) {
  const Rank world = GetParam();
  for_each_shape(world, world / 3, [](const Schedule& schedule) {
    for (const bool in_place : places(schedule))
      for (const std::size_t buffered : {0, 2}) {
        const bool needs_buffers = in_place && schedule.buffered_in_place;
        if (needs_buffers && buffered == 0) continue;
        // What runs without buffers runs with them: see verify. Small worlds make sure of that.
        if (schedule.world > 16 && !needs_buffers && buffered > 0) continue;
        expect_proven(schedule, {.slice_bytes = slice_bytes, .buffered_slices = buffered, .in_place = in_place});
      }
  });
}

// Chunks of seven slices and more, in rounds that are ahead by some of them, or by all; who sends to many at once then
// by few.
TEST(Verify, ProvesRoundsThatAreAhead) {
  for (Rank world = 2; world <= (support::sanitized ? 9 : 17); ++world)
    for (const std::size_t ahead : {3, 10, 40, 1000})
      for_each_shape(world, world / 3, [&](const Schedule& schedule) {
        const std::size_t chunk = 7 * slice_bytes / verified_element_bytes + 1;
        for (const bool in_place : places(schedule))
          expect_proven(schedule, {.count = moves_whole_vector(schedule.collective) ? chunk * schedule.chunks : chunk,
                                   .slice_bytes = slice_bytes,
                                   .buffered_slices = in_place && schedule.buffered_in_place ? 1u : 0u,
                                   .in_place = in_place,
                                   .ahead_bytes = ahead * slice_bytes,
                                   .lead_bytes = ahead < 40 ? 0 : 5 * slice_bytes});
      });
}

// An element for every chunk at least: a chunk without one would leave its transfers out.
TEST(Verify, ProvesLargeWorlds) {
  if (support::sanitized) GTEST_SKIP() << "the same code in larger loops";
  for (const Rank world : {96, 128, 192})
    for_each_shape(world, world / 3, [](const Schedule& schedule) {
      const std::size_t count =
          moves_whole_vector(schedule.collective) ? std::max(schedule.chunks, std::min(3 * schedule.chunks, 300u)) : 1;
      for (const bool in_place : places(schedule))
        expect_proven(schedule, {.count = count,
                                 .slice_bytes = slice_bytes,
                                 .buffered_slices = in_place && schedule.buffered_in_place ? 1u : 0u,
                                 .in_place = in_place});
    });
}

TEST(Verify, ProvesWholeVectorsOfAThousandRanks) {
  if (support::sanitized) GTEST_SKIP() << "the same code in larger loops";
  for_each_schedule(1000, 333, [](const Schedule& schedule) {
    if (moves_whole_vector(schedule.collective))
      expect_proven(schedule, {.count = schedule.chunks, .slice_bytes = slice_bytes});
  });
}

TEST(Verify, ProvesPartsOfAThousandRanks) {
  if (support::sanitized) GTEST_SKIP() << "the same code in larger loops";
  for_each_schedule(1000, 333, [](const Schedule& schedule) {
    if (moves_whole_vector(schedule.collective) || schedule.collective == Collective::all_to_all) return;  // see below
    expect_proven(schedule, {.count = 1, .slice_bytes = slice_bytes});
  });
}

// A million parts.
TEST(Verify, ProvesAllToAllOfAThousandRanks) {
  if (support::sanitized) GTEST_SKIP() << "the same code in larger loops";
  for (const Algorithm& algorithm : algorithms())
    if (std::ranges::count(algorithm.collectives, Collective::all_to_all) > 0)
      expect_proven(algorithm.build({.collective = Collective::all_to_all, .world = 1000}),
                    {.count = 1, .slice_bytes = slice_bytes});
}

TEST(Verify, ProvesEveryGrid) {
  const std::vector<std::vector<Rank>> grids{{1, 1}, {5},       {1, 6},    {6, 1},       {2, 3},         {3, 2},
                                             {4, 4}, {2, 2, 2}, {3, 1, 4}, {2, 3, 4},    {4, 3, 2},      {5, 3, 2},
                                             {7, 3}, {2, 9},    {3, 3, 3}, {2, 2, 2, 2}, {3, 2, 2, 1, 2}};
  for (const auto& dims : grids) {
    const Rank world = std::accumulate(dims.begin(), dims.end(), Rank{1}, std::multiplies<>());
    for (const Algorithm& algorithm : algorithms()) {
      if (algorithm.dims != Dims::grid) continue;
      for (const Collective collective : algorithm.collectives)
        for (const bool in_place : {false, true})
          expect_proven(algorithm.build({.collective = collective, .world = world, .dims = dims}),
                        {.slice_bytes = slice_bytes, .in_place = in_place});
    }
  }
}

TEST(Verify, ProvesEverySizeOfNodes) {
  for (Rank world = 1; world <= 14; ++world)
    for (Rank per_node = 1; per_node <= world + 1; ++per_node)
      for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather})
        for (const bool in_place : {false, true})
          expect_proven(hierarchical(collective, world, per_node), {.slice_bytes = slice_bytes, .in_place = in_place});
}

TEST(Verify, ProvesEveryRoot) {
  for (const Rank world : {2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17})
    for (Rank root = 0; root < world; ++root)
      for_each_schedule(world, root, [](const Schedule& schedule) {
        if (!has_root(schedule.collective)) return;
        for (const bool in_place : {false, true})
          expect_proven(schedule, {.slice_bytes = slice_bytes, .in_place = in_place});
      });
}

// Empty vectors, fewer elements than chunks, one slice exactly, and several chunks in a slice.
TEST(Verify, ProvesEveryCount) {
  for (const Rank world : {1, 2, 3, 4, 5, 7, 8, 13})
    for (const std::size_t count : {1, 2, 3, 5, 16, 17, 31, 64, 100})
      for_each_schedule(world, world - 1, [&](const Schedule& schedule) {
        for (const bool in_place : places(schedule))
          for (const std::size_t slice : {4, 64, 4096})
            expect_proven(schedule, {.count = count, .slice_bytes = slice, .buffered_slices = 1, .in_place = in_place});
      });
}

TEST(Verify, NeedsNoMoreBufferingThanASchedulePromises) {
  for (const Rank world : {2, 3, 4, 7, 8})
    for_each_schedule(world, 0, [](const Schedule& schedule) {
      VerifyOptions options{.slice_bytes = slice_bytes,
                            .buffered_slices = schedule.buffered_in_place ? 1u : 0u,
                            .in_place = works_in_place(schedule)};
      expect_proven(schedule, options);
      if (!schedule.buffered_in_place) return;
      options.buffered_slices = 0;
      EXPECT_THAT(verify(schedule, options).problem, testing::HasSubstr("deadlock")) << name(schedule);
    });
}

}  // namespace
}  // namespace ranvier
