#include "engine/selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "engine/link_probe.h"
#include "ranvier/schedule.h"
#include "support/sanitized.h"

namespace ranvier::engine {
namespace {

constexpr std::array collectives{Collective::all_reduce, Collective::reduce,         Collective::broadcast,
                                 Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all,
                                 Collective::gather,     Collective::scatter};
constexpr std::size_t slice = 128 << 10;

Schedule built(const TuningRow& row) {
  const AlgorithmSpec spec = parse_algorithm(row.algorithm);
  return spec.algorithm().build({.collective = row.collective, .world = row.ranks, .dims = spec.dims});
}

TEST(Selection, IsATableOfAllSizesForAnyWorld) {
  const std::vector<Rank> worlds =
      support::sanitized ? std::vector{1, 2, 3, 5, 8, 17} : std::vector{1, 2, 3, 4, 5, 8, 12, 17, 64, 1000};
  for (const Rank world : worlds)
    for (const auto* const transport : {"shm", "tcp"})
      for (const bool crowded : {false, true}) {
        Selection selection(
            {.world = world, .transport = transport, .links = nominal_links(transport, crowded), .slice_bytes = slice});
        TuningTable table;
        for (const Collective collective : collectives) {
          const auto& rows = selection.rows(collective);
          ASSERT_FALSE(rows.empty());
          EXPECT_EQ(rows.back().up_to, TuningRow::max);
          table.replace(rows);
        }
        EXPECT_EQ(TuningTable::parse(table.text(), "its text").rows(), table.rows());
      }
}

TEST(Selection, PassesNothingOnByASlowLine) {
  constexpr Rank world = 4;
  constexpr std::size_t bytes = 4 << 20;
  for (Rank slow = 0; slow < world; ++slow) {
    LinkModel links = nominal_links("tcp", false);
    links.byte = 100e-9;
    const auto choice = [&](Collective collective) {
      Selection selection({.world = world, .transport = "tcp", .links = links, .slice_bytes = slice});
      return built({.collective = collective,
                    .transport = "tcp",
                    .ranks = world,
                    .up_to = bytes,
                    .algorithm = selection.choice(collective, bytes)});
    };
    const auto sent_by_slow = [&](const Schedule& schedule) {
      double chunks = 0;
      for (const Step& step : schedule.program(slow)) chunks += step.action == Action::send ? step.chunks : 0;
      return chunks / schedule.chunks;
    };
    const Schedule of_equals = choice(Collective::all_reduce), told = choice(Collective::broadcast);
    EXPECT_EQ(sent_by_slow(of_equals), 1.5) << of_equals.algorithm << ": the fewest bytes of the busiest";
    links.lines.assign(world, 0.0625);
    links.lines[static_cast<std::size_t>(slow)] = 1;
    const Schedule chosen = choice(Collective::all_reduce);
    EXPECT_LE(sent_by_slow(chosen), 1) << slow << ", " << chosen.algorithm;
    EXPECT_EQ(choice(Collective::broadcast).algorithm, told.algorithm) << "whose root may be any rank";
  }
}

TEST(Selection, TakesTheCheapestOfAllCandidates) {
  for (const Rank world : {2, 4, 6, 16}) {
    const LinkModel links = nominal_links("tcp", false);
    Selection selection({.world = world, .transport = "tcp", .links = links, .slice_bytes = slice});
    for (const Collective collective : collectives) {
      for (std::size_t bytes = 4; bytes <= std::size_t{1} << 28; bytes *= 16) {
        const auto fits = [&](const TuningRow& row) { return bytes <= row.up_to; };
        const TuningRow& row = *std::ranges::find_if(selection.rows(collective), fits);
        const double chosen = predict(links, ScheduleCost(built(row)), bytes, slice);
        for (const AlgorithmSpec& spec : candidates(collective, world)) {
          const Schedule other = spec.algorithm().build({.collective = collective, .world = world, .dims = spec.dims});
          EXPECT_LE(0.96 * chosen, predict(links, ScheduleCost(other), bytes, slice))
              << spec_text(spec) << " beats " << row.algorithm << " at " << bytes << " bytes on " << world << " ranks";
        }
      }
    }
  }
}

// See leaves_caches in selection.cc: what the model does not count.
TEST(Selection, PassesLargeVectorsAroundARingWhereRanksShareMemory) {
  const auto taken = [](Collective collective, Rank world, std::size_t bytes, bool crowded = true) {
    Selection selection(
        {.world = world, .transport = "shm", .links = nominal_links("shm", crowded), .slice_bytes = slice});
    return selection.choice(collective, bytes);
  };
  for (const Rank world : {3, 4, 6}) {
    for (const Collective collective : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
      EXPECT_EQ(taken(collective, world, 512 << 10), "ring") << name_of(collective) << world;
      EXPECT_NE(taken(collective, world, 64), "ring") << name_of(collective) << world;
    }
    EXPECT_EQ(taken(Collective::all_gather, world, 32 << 20), "ring") << world;
    EXPECT_NE(taken(Collective::all_gather, world, 512 << 10, false), "ring") << "each has a core of its own";
  }
  EXPECT_EQ(taken(Collective::all_reduce, 2, 1 << 20), "direct") << "two ranks are a ring as they are";
}

// Of trials that differ by less than one algorithm does from batch to batch, the model's choice is taken.
TEST(Selection, KeepsTheRingWhereTrialsAreNoClearer) {
  const auto taken = [](Collective collective, double ring_seconds) {
    Selection selection({.world = 4,
                         .on_one_host = true,
                         .transport = "shm",
                         .links = nominal_links("shm", true),
                         .slice_bytes = slice,
                         .trials = {{collective, 64 << 10, "direct", 10e-6},
                                    {collective, 512 << 10, "ring", ring_seconds},
                                    {collective, 512 << 10, "halving_doubling", 100e-6}}});
    return selection.choice(collective, 512 << 10);
  };
  for (const Collective collective : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
    EXPECT_EQ(taken(collective, 109e-6), "ring") << name_of(collective);
    EXPECT_EQ(taken(collective, 115e-6), "halving_doubling") << name_of(collective);
  }
}

// See partial_sums_leave_caches in selection.cc. By these links alone rings and grids would be cheaper.
TEST(Selection, AddsLargePartsAtOnceWhereRanksShareMemory) {
  for (const Rank world : {3, 4, 8, 16}) {
    const LinkModel links{.latency = 1e-6 * world,
                          .message = 0.15e-6 * world,
                          .byte = 0.5e-9,
                          .reduce = 0.12e-9,
                          .partner = 0.02,
                          .crowded = true};
    Selection selection({.world = world, .transport = "shm", .links = links, .slice_bytes = slice});
    for (std::size_t bytes = std::size_t{1} << 20; bytes <= std::size_t{64} << 20; bytes *= 4) {
      const std::string& choice = selection.choice(Collective::reduce_scatter, bytes);
      EXPECT_TRUE(choice == "direct" || choice == "round_robin") << choice << ", " << world << " ranks, " << bytes;
    }
  }
}

// Where its bytes take most of the time; see nominal_links.
TEST(Selection, SendsLargePartsOfAnExchangeStraightWhereRanksShareMemory) {
  for (const bool crowded : {false, true})
    for (const Rank world : {2, 3, 4, 8}) {
      Selection selection(
          {.world = world, .transport = "shm", .links = nominal_links("shm", crowded), .slice_bytes = slice});
      for (std::size_t bytes = std::size_t{1} << 20; bytes <= std::size_t{64} << 20; bytes *= 4)
        EXPECT_NE(selection.choice(Collective::all_to_all, bytes), "bruck") << world << " ranks, " << bytes << " B";
    }
}

// Whatever was measured: from and to a root the model is too far off where the ranks of one host share its cores.
TEST(Selection, GoesByRulesFromAndToARootOnOneHost) {
  for (const Rank world : {3, 4, 8, 16})
    for (const auto* const transport : {"shm", "tcp"})
      for (const double faster : {0.25, 1.0, 4.0}) {
        LinkModel links = nominal_links(transport, true);
        links.latency *= faster;
        links.byte /= faster;
        SelectionSettings settings{
            .world = world, .on_one_host = true, .transport = transport, .links = links, .slice_bytes = slice};
        Selection selection(settings);
        const bool memory = settings.transport == "shm";
        const auto expect = [&](Collective collective, std::size_t bytes, const char* algorithm) {
          EXPECT_EQ(selection.choice(collective, bytes), algorithm)
              << name_of(collective) << ' ' << bytes << ", " << transport << ", " << world;
        };
        expect(Collective::broadcast, 1 << 10, memory ? "direct" : "ring");
        expect(Collective::broadcast, 16 << 10, "bine_tree");
        expect(Collective::broadcast, 1 << 20, memory ? "bine_tree" : "ring");
        expect(Collective::reduce, 1 << 10, "direct");
        expect(Collective::reduce, 128 << 10, "bine_tree");
        expect(Collective::reduce, 4 << 20, "direct");
        expect(Collective::gather, 1 << 20, "direct");
        expect(Collective::scatter, 1 << 10, memory ? "direct" : "bine_tree");
        expect(Collective::scatter, 1 << 20, "direct");
      }
  // Between hosts, whose ranks may share cores as well, the lines count.
  Selection between({.world = 8, .transport = "tcp", .links = nominal_links("tcp", true), .slice_bytes = slice});
  Selection inside(
      {.world = 8, .on_one_host = true, .transport = "tcp", .links = nominal_links("tcp", true), .slice_bytes = slice});
  EXPECT_NE(between.choice(Collective::broadcast, 4 << 20), inside.choice(Collective::broadcast, 4 << 20));
}

TEST(Selection, PassesLargeVectorsAroundARingBetweenHosts) {
  LinkModel links = nominal_links("tcp", false);
  links.latency = 60e-6;
  links.byte = 8e-9;  // 1 Gbit/s
  for (const Rank world : {4, 8}) {
    Selection selection({.world = world, .transport = "tcp", .links = links, .slice_bytes = 512 << 10});
    const auto& rows = selection.rows(Collective::all_reduce);
    EXPECT_EQ(rows.back().algorithm, "ring") << world;
    EXPECT_NE(rows.front().algorithm, "ring") << world;
    EXPECT_LE(rows[rows.size() - 2].up_to, std::size_t{2} << 20) << world;
  }
}

TEST(Selection, FollowsWhatTheLinksCost) {
  const auto cost_of = [](Rank world, const LinkModel& links) {
    Selection selection({.world = world, .transport = "tcp", .links = links, .slice_bytes = slice});
    const auto& rows = selection.rows(Collective::all_reduce);
    return std::pair(ScheduleCost(built(rows.front())), ScheduleCost(built(rows.back())));
  };
  for (const Rank world : {4, 8, 24}) {
    EXPECT_EQ(cost_of(world, {.latency = 1}).first.depth(), 1U) << "only time on the way costs";
    EXPECT_LE(cost_of(world, {.latency = 1e-9, .byte = 1}).second.busiest(1 << 20, slice).bytes,
              2.0 * (1 << 20) * (world - 1) / world * 1.05)
        << "only bytes cost";
  }
  EXPECT_LE(cost_of(16, {.message = 1}).first.busiest(4, slice).messages, 4) << "only messages cost";
}

// Fewer rounds than on two, and fewer messages than on one: what decides for vectors of middling size on slow links.
TEST(Selection, DividesManyRanksIntoThreeDimensionsWhereTheModelSaysSo) {
  const LinkModel links{.latency = 50e-6, .message = 1e-6, .byte = 8e-9, .partner = 0.05};
  Selection selection({.world = 64, .transport = "tcp", .links = links, .slice_bytes = slice});
  std::vector<std::string> chosen;
  for (const TuningRow& row : selection.rows(Collective::all_reduce)) chosen.push_back(row.algorithm);
  EXPECT_THAT(chosen, testing::Contains("multi_dimensional:4x4x4"));
}

TEST(Selection, KeepsToTheLinksOfATopologyWhereItCan) {
  for (const auto& [spec, world] : {std::pair{"ring", 8},
                                    {"torus:2x4", 8},
                                    {"mesh:2x4", 8},
                                    {"torus:2x2x2", 8},
                                    {"star", 8},
                                    {"mesh:8", 8},
                                    {"mesh:4x2x2", 16},
                                    {"torus:2x4x4", 32},
                                    {"mesh:2x2x2x2", 16}}) {
    const auto topology = std::make_shared<const Topology>(make_topology(spec, world));
    Selection selection({.world = world,
                         .transport = "tcp",
                         .links = nominal_links("tcp", false),
                         .slice_bytes = slice,
                         .topology = topology});
    for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather})
      for (const TuningRow& row : selection.rows(collective))
        EXPECT_EQ(missing_link(built(row), *topology), "") << row.algorithm << " on " << spec;
    EXPECT_FALSE(selection.rows(Collective::all_to_all).empty()) << "that no neighbours do alone";
  }
}

TEST(LinkProbe, FindsTheModelByWhichSamplesTookTheirTime) {
  for (const bool crowded : {false, true})
    for (const Rank world : {2, 3, 4, 7, 16}) {
      const LinkModel nominal = nominal_links("tcp", crowded);
      LinkModel truth = nominal;
      truth.latency *= 5;
      truth.message *= 5;
      truth.byte *= 0.1;
      truth.reduce = 1e-10;
      const auto sample = [&](const Schedule& schedule, std::size_t bytes) {
        const ScheduleCost cost(schedule);
        return ProbeSample{.seconds = predict(truth, cost, bytes, slice),
                           .depth = cost.depth(),
                           .work = decisive(truth, cost, bytes, slice)};
      };
      const LinkModel found = fit_links(nominal, sample(recursive_doubling(Collective::all_reduce, world), 0),
                                        sample(direct(Collective::all_gather, world), 1 << 18), truth.reduce);
      for (double LinkModel::*const number :
           {&LinkModel::latency, &LinkModel::message, &LinkModel::byte, &LinkModel::reduce})
        EXPECT_NEAR(found.*number / truth.*number, 1, 1e-6) << world;
      EXPECT_EQ(found.crowded, crowded);
      const LinkModel unmeasured = fit_links(nominal, {.seconds = 1, .depth = 1, .work = {.messages = 1}},
                                             {.seconds = 3, .depth = 1, .work = {.messages = 1, .bytes = 100}}, 0);
      EXPECT_NEAR(unmeasured.reduce / unmeasured.byte, nominal.reduce / nominal.byte, 1e-9);
    }
}

TEST(LinkProbe, FindsWhatTheLineBetweenNodesCostsBesideMemory) {
  for (const bool crowded : {false, true}) {
    const LinkModel nominal = nominal_links("shm+tcp", crowded);
    LinkModel truth = nominal;
    truth.byte *= 0.2;
    truth.between = 8e-9;
    truth.reduce = 1e-10;
    const auto took = [&](ProbeSample sample) {
      sample.seconds = truth.latency * sample.depth + truth.message * sample.work.messages +
                       truth.byte * sample.work.bytes + truth.between * sample.work.between;
      return sample;
    };
    const LinkModel found =
        fit_nodes(nominal, took({.depth = 3, .work = {.messages = 3}}),
                  took({.depth = 1, .work = {.messages = 7, .bytes = 48e3}}),
                  took({.depth = 1, .work = {.messages = 7, .bytes = 64e3, .between = 256e3}}), truth.reduce);
    EXPECT_NEAR(found.byte / truth.byte, 1, 1e-6);
    EXPECT_NEAR(found.between / truth.between, 1, 1e-6);
  }
}

TEST(LinkProbe, CountsTheStreamsThatShareALine) {
  const auto streams = [](Rank ranks, Rank per_node) {
    return streams_across({.world = ranks, .ranks_per_node = per_node});
  };
  EXPECT_EQ(streams(8, 4), 4);
  EXPECT_EQ(streams(5, 4), 1) << "the others of the first node have no counterpart";
  EXPECT_EQ(streams(7, 4), 3);
  EXPECT_EQ(streams(9, 4), 4) << "between the first two nodes";
}

TEST(Selection, SparesTheLineThatTheRanksOfANodeShare) {
  LinkModel links = nominal_links("shm+tcp", false);
  links.byte = 0.06e-9;
  for (const Rank nodes : {2, 3, 4}) {
    SelectionSettings settings{
        .world = 4 * nodes, .ranks_per_node = 4, .transport = "shm+tcp", .links = links, .slice_bytes = slice};
    EXPECT_THAT(Selection(settings).choice(Collective::all_reduce, 64 << 20), testing::Not("hierarchical:4"))
        << "with lines that cost no more than memory";
    settings.links.between = 8e-9;  // 1 Gbit/s
    Selection selection(settings);
    const ScheduleCost hierarchy(hierarchical(Collective::all_reduce, settings.world, 4), 4);
    for (const std::size_t bytes : {1 << 20, 64 << 20}) {
      const AlgorithmSpec taken = parse_algorithm(selection.choice(Collective::all_reduce, bytes));
      const Schedule schedule =
          taken.algorithm().build({.collective = Collective::all_reduce, .world = settings.world, .dims = taken.dims});
      EXPECT_LE(ScheduleCost(schedule, 4).between_nodes(bytes), 1.01 * hierarchy.between_nodes(bytes))
          << spec_text(taken) << " of " << bytes << " between " << nodes << " nodes";
    }
  }
}

TEST(Selection, SparesTheLineOfHostsOfWhichTheLastHasFewerRanks) {
  LinkModel links = nominal_links("shm+tcp", false);
  links.byte = 0.06e-9;
  links.between = 8e-9;
  for (const auto& [world, per_node] : {std::pair{5, 3}, {7, 4}, {11, 4}}) {
    Selection selection(
        {.world = world, .ranks_per_node = per_node, .transport = "shm+tcp", .links = links, .slice_bytes = slice});
    const AlgorithmSpec taken = parse_algorithm(selection.choice(Collective::all_reduce, 64 << 20));
    const auto crossing = [a_node = per_node](const Schedule& schedule) {
      return ScheduleCost(schedule, a_node).between_nodes(64 << 20);
    };
    EXPECT_LE(
        crossing(taken.algorithm().build({.collective = Collective::all_reduce, .world = world, .dims = taken.dims})),
        1.01 * crossing(hierarchical(Collective::all_reduce, world, per_node)))
        << spec_text(taken) << " of " << world << " ranks, " << per_node << " a host";
  }
}

}  // namespace
}  // namespace ranvier::engine
