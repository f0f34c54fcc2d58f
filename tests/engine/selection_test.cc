#include "engine/selection.h"

#include <gtest/gtest.h>

#include "ranvier/schedule.h"

namespace ranvier::engine {
namespace {

TEST(SelectionTest, EveryChoiceIsAnAlgorithmThatBuildsForThatWorld) {
  for (const Collective collective :
       {Collective::all_reduce, Collective::reduce, Collective::broadcast, Collective::all_gather,
        Collective::reduce_scatter, Collective::all_to_all, Collective::gather, Collective::scatter})
    for (Rank world = 1; world <= 64; ++world)
      for (std::size_t bytes = 1; bytes <= std::size_t{1} << 28; bytes *= 16)
        for (const bool uneven : {false, true})
          for (const auto& [shared, crowded] : {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
            const auto name = select_algorithm({collective, world, bytes, uneven, shared, crowded});
            const Schedule schedule =
                find_algorithm(name, collective).build({.collective = collective, .world = world});
            EXPECT_EQ(schedule.world, world);
            EXPECT_EQ(schedule.collective, collective);
          }
}

}  // namespace
}  // namespace ranvier::engine
