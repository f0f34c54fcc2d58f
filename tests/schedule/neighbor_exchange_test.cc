// Neighbour exchange on every kind of grid: open, periodic, with lines of one and of two.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "ranvier/error.h"
#include "ranvier/schedule.h"
#include "support/refusal.h"

namespace ranvier {
namespace {

using support::refusal;
using testing::HasSubstr;

Rank ranks_of(const std::vector<Rank>& dims) {
  return std::accumulate(dims.begin(), dims.end(), Rank{1}, std::multiplies<>());
}

// Every choice of periods for every grid.
template <class Visit>
void for_each_grid(Visit visit) {
  for (const std::vector<Rank>& dims : std::vector<std::vector<Rank>>{
           {1}, {2}, {3}, {7}, {2, 2}, {3, 2}, {1, 5}, {4, 5}, {2, 2, 2}, {3, 1, 2}, {2, 3, 4}, {3, 3, 3}})
    for (unsigned chosen = 0; chosen < 1u << dims.size(); ++chosen) {
      CartesianGrid grid{.dims = dims};
      for (std::size_t d = 0; d < dims.size(); ++d) grid.periodic.push_back((chosen >> d & 1) != 0);
      visit(neighbor_exchange(ranks_of(dims), grid));
    }
}

std::string grid_name(const Schedule& schedule) {
  return testing::PrintToString(schedule.grid.dims) + ", periodic " + testing::PrintToString(schedule.grid.periodic);
}

TEST(Neighbor, IsOneStepAlongADimension) {
  // 0 1 2
  // 3 4 5
  const CartesianGrid open{.dims = {2, 3}};
  const auto of = [](const CartesianGrid& grid, Rank rank) {
    return std::vector{neighbor(grid, rank, 0), neighbor(grid, rank, 1), neighbor(grid, rank, 2),
                       neighbor(grid, rank, 3)};
  };
  EXPECT_EQ(of(open, 0), (std::vector<Rank>{no_neighbor, 3, no_neighbor, 1}));
  EXPECT_EQ(of(open, 4), (std::vector<Rank>{1, no_neighbor, 3, 5}));
  const CartesianGrid rows_around{.dims = {2, 3}, .periodic = {false, true}};
  EXPECT_EQ(of(rows_around, 3), (std::vector<Rank>{0, no_neighbor, 5, 4}));
  const CartesianGrid all_around{.dims = {2, 3}, .periodic = {true, true}};
  EXPECT_EQ(of(all_around, 2), (std::vector<Rank>{5, 5, 1, 0}));
  EXPECT_EQ(neighbor({.dims = {2, 3, 4}}, 17, 1), no_neighbor);
  EXPECT_EQ(neighbor({.dims = {2, 3, 4}}, 17, 0), 5);
  EXPECT_EQ(neighbor({.dims = {2, 3, 4}}, 17, 3), 21);
  EXPECT_EQ(neighbor({.dims = {1}, .periodic = {true}}, 0, 1), 0);
}

TEST(NeighborExchange, IsProvenOnEveryGrid) {
  for_each_grid([](const Schedule& schedule) {
    for (const std::size_t count : {0, 1, 5})
      for (const std::size_t buffered : {0, 1, 2}) {
        const Verdict verdict = verify(schedule, {.count = count, .slice_bytes = 8, .buffered_slices = buffered});
        EXPECT_TRUE(verdict.ok) << grid_name(schedule) << ": " << verdict.problem;
      }
  });
}

// Sizes differ by direction and from link to link; some parts are empty.
std::size_t part_towards(Rank from, std::uint32_t direction) {
  return static_cast<std::size_t>(from * 7 + static_cast<Rank>(direction) * 5) % 4 * 3 % 8;
}

Layout uneven_layout(const Schedule& schedule, Rank rank) {
  Layout layout;
  const auto add = [](std::vector<Extent>& extents, std::size_t elements) {
    const std::size_t offset = extents.empty() ? 0 : extents.back().offset + extents.back().bytes;
    extents.push_back({offset, elements * verified_element_bytes});
  };
  for (std::uint32_t direction = 0; direction < schedule.chunks; ++direction) {
    const Rank beside = neighbor(schedule.grid, rank, direction);
    add(layout.input, part_towards(rank, direction));
    add(layout.output, beside == no_neighbor ? 2 : part_towards(beside, opposite(direction)));
  }
  return layout;
}

TEST(NeighborExchange, IsProvenWithPartsOfDifferentSizes) {
  for_each_grid([](const Schedule& schedule) {
    std::vector<Layout> layouts;
    std::vector<Program> programs;
    for (Rank rank = 0; rank < schedule.world; ++rank) {
      layouts.push_back(uneven_layout(schedule, rank));
      programs.push_back(
          compile(schedule, rank, layouts.back(), {.element_bytes = verified_element_bytes, .slice_bytes = 8}));
    }
    const Verdict verdict = verify(schedule, layouts, programs, {.slice_bytes = 8});
    EXPECT_TRUE(verdict.ok) << grid_name(schedule) << ": " << verdict.problem;
  });
}

TEST(NeighborExchange, CostsAMessageADirectionInTwoRounds) {
  const auto expect_cost = [](const CartesianGrid& grid, std::uint32_t rounds, std::size_t messages) {
    const Verdict cost = verify(neighbor_exchange(ranks_of(grid.dims), grid), {.count = 6, .slice_bytes = 8});
    EXPECT_TRUE(cost.ok) << cost.problem;
    EXPECT_EQ(cost.rounds, rounds);
    EXPECT_EQ(cost.most_messages, messages);
    EXPECT_EQ(cost.most_bytes_sent, messages * 6 * verified_element_bytes);
    EXPECT_EQ(cost.vector_bytes, 2 * grid.dims.size() * 6 * verified_element_bytes);
  };
  expect_cost({.dims = {5}}, 2, 2);
  expect_cost({.dims = {2}}, 2, 1);
  expect_cost({.dims = {2}, .periodic = {true}}, 2, 2);
  expect_cost({.dims = {3, 4}}, 2, 4);
  expect_cost({.dims = {2, 2, 2}}, 2, 3);
  expect_cost({.dims = {2, 2, 2}, .periodic = {true, true, true}}, 2, 6);
  expect_cost({.dims = {3, 3, 3}}, 2, 6);
  expect_cost({.dims = {1}, .periodic = {true}}, 0, 0);
}

Schedule with_step(const Schedule& schedule, Rank rank, std::size_t i, const Step& step) {
  Schedule changed = schedule;
  changed.program = [original = schedule.program, rank, i, step](Rank each) {
    std::vector<Step> steps = original(each);
    if (each == rank) steps.at(i) = step;
    return steps;
  };
  return changed;
}

// What MPI libraries have been known to get wrong: with one rank on both sides, what went down must come from above.
TEST(NeighborExchange, WithOneNeighborOnBothSidesIsNotMixedUp) {
  Schedule schedule = neighbor_exchange(2, {.dims = {2}, .periodic = {true}});
  ASSERT_TRUE(verify(schedule).ok);
  schedule.program = [original = schedule.program](Rank rank) {
    std::vector<Step> steps = original(rank);
    for (Step& step : steps)
      if (step.action == Action::recv) step.to = output(opposite(step.to.chunk));
    return steps;
  };
  EXPECT_THAT(verify(schedule).problem, HasSubstr("wrong output chunk"));
}

TEST(NeighborExchange, LeavesThePartBeyondABorderAlone) {
  const Schedule schedule = neighbor_exchange(3, {.dims = {3}});
  const std::vector<Step> steps = schedule.program(0);
  const auto recv = std::ranges::find(steps, Action::recv, &Step::action);
  Step misplaced = *recv;
  misplaced.to = output(0);
  const Verdict verdict = verify(with_step(schedule, 0, static_cast<std::size_t>(recv - steps.begin()), misplaced));
  EXPECT_THAT(verdict.problem, HasSubstr("rank 0 ends with a wrong output chunk 0: its element 0 holds 1 contributions "
                                         "instead of 0"));
}

TEST(NeighborExchange, AlongALineOfOneIsACopyAcross) {
  const Schedule schedule = neighbor_exchange(1, {.dims = {1}, .periodic = {true}});
  ASSERT_TRUE(verify(schedule).ok);
  Schedule mixed_up = schedule;
  mixed_up.program = [](Rank) {
    return std::vector<Step>{{Action::copy, -1, input(0), output(0), 0}, {Action::copy, -1, input(1), output(1), 1}};
  };
  EXPECT_FALSE(verify(mixed_up).ok);
}

TEST(NeighborExchange, RefusesWhatItCannotServe) {
  EXPECT_THAT(refusal([] { neighbor_exchange(6, {.dims = {2, 2}}); }), HasSubstr("2x2, which has 4 ranks"));
  EXPECT_THAT(refusal([] {
                neighbor_exchange(6, {.dims = {2, 3}, .periodic = {true}});
              }),
              HasSubstr("periods for 1 dimensions, but its grid has 2"));
  const Schedule schedule = neighbor_exchange(3);
  EXPECT_THAT(refusal([&] { compile(schedule, 0, even_layout(schedule, 0, 4, 4), {.in_place = true}); }),
              HasSubstr("does not work in place"));
}

TEST(NeighborExchange, TakesItsGridBehindItsName) {
  const AlgorithmSpec open = parse_algorithm("neighbor_exchange:2x4");
  EXPECT_EQ(open.dims, (std::vector<Rank>{2, 4}));
  EXPECT_TRUE(open.periodic.empty());
  EXPECT_TRUE(parse_algorithm("neighbor_exchange:2x4,periods=0x0").periodic.empty());
  const AlgorithmSpec periodic = parse_algorithm("neighbor_exchange:2x4x3,periods=1x0x1");
  EXPECT_EQ(periodic.dims, (std::vector<Rank>{2, 4, 3}));
  EXPECT_EQ(periodic.periodic, (std::vector<bool>{true, false, true}));
  for (const char* const wrong :
       {"periods=", "periods=1", "periods=1x", "periods=1x0x1", "periods=1x2", "periods=10", "period=1x0", "1x0", ""})
    EXPECT_THAT(refusal([&] { parse_algorithm(std::string("neighbor_exchange:2x4,") + wrong); }),
                HasSubstr("periods=1x0"))
        << wrong;
  EXPECT_THAT(refusal([] { parse_algorithm("torus:2x4,periods=1x0"); }), HasSubstr("write torus:2x4"));
}

}  // namespace
}  // namespace ranvier
