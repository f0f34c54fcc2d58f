// Designs by the graph of a Chakra trace, against all ways through it, one by one.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "plan/certificate.h"
#include "plan/chakra_writer.h"
#include "plan/libra_cases.h"
#include "plan/temporary_file.h"
#include "ranvier/chakra.h"
#include "ranvier/design_search.h"
#include "ranvier/error.h"
#include "support/refusal.h"

namespace ranvier {
namespace {

using namespace chakra_writer;
using testing::ElementsAre;
using testing::HasSubstr;

std::string text(const std::string& key, const std::string& value) {
  constexpr int string_value = 29;
  return block(10, block(1, key) + block(string_value, value));
}
std::string flags(const std::string& key, const std::string& values) {
  constexpr int bool_list = 28;
  return block(10, block(1, key) + block(bool_list, block(1, values)));
}
std::string kind(std::uint64_t comm_type, std::uint64_t bytes) {
  return attribute("comm_type", int64_value, comm_type) + attribute("comm_size", int64_value, bytes);
}
std::string between(std::uint64_t from, std::uint64_t to, std::uint64_t bytes) {
  return attribute("comm_size", int64_value, bytes) + attribute("comm_src", int64_value, from) +
         attribute("comm_dst", int64_value, to);
}
// As the converter of PyTorch's traces writes what PyTorch knows of its groups.
std::string groups(const std::string& json) {
  constexpr int metadata = 1;
  return message(number(1, 1'000'000) + block(2, "## process_group:init ##") + number(3, metadata) +
                 block(8, block(1, "['" + json + "']") + block(2, "[[]]") + block(3, "['String']")));
}

class TraceGraph : public FileTest {
 protected:
  ExecutionTrace trace(const std::string& nodes) { return read_chakra_graph(holding(head + nodes)); }
};

constexpr auto in_three_groups = R"([{"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 32},)"
                                 R"( {"pg_name": "1", "ranks": [0, 1, 2, 3], "group_size": 4},)"
                                 R"( {"pg_name": "2", "ranks": [1, 5, 9, 13, 17, 21, 25, 29]},)"
                                 R"( {"pg_name": "3", "ranks": [0, 1, 4, 5]}])";

TEST_F(TraceGraph, SpansWhatTheTraceSays) {
  const NetworkShape shape = parse_network("FC(4)_SW(8)");
  const ExecutionTrace read =
      trace(groups(in_three_groups) + node(1, collective, 0, {}, all_reduce(8)) +
            node(2, collective, 0, {}, all_reduce(8) + text("pg_name", "1")) +
            node(3, collective, 0, {}, all_reduce(8) + text("pg_name", "2")) +
            node(4, collective, 0, {}, all_reduce(8) + attribute("pg_name", int64_value, 3)) +
            node(5, collective, 0, {}, all_reduce(8) + text("pg_name", "0")) +
            node(6, collective, 0, {}, all_reduce(8) + flags("involved_dim", std::string("\0\1\1\1", 4))) +
            node(7, send, 0, {}, between(2, 6, 8)) + node(8, send, 0, {}, between(2, 7, 8)) + node(9, compute, 1, {}));
  EXPECT_THAT(place(read, shape),
              ElementsAre(GroupSizes{4, 8}, GroupSizes{4, 1}, GroupSizes{1, 8}, GroupSizes{2, 2}, GroupSizes{4, 8},
                          GroupSizes{1, 8}, GroupSizes{1, 2}, GroupSizes{2, 2}, GroupSizes{}, GroupSizes{}));
  // From rank 2 to 7 a message crosses both dimensions.
  const StepGraph graph = step_graph(read, shape);
  const auto& loads = graph.terms.at(*graph.nodes.at(7).term).loads;
  ASSERT_EQ(loads.size(), 2u);
  EXPECT_EQ(loads[0].bytes, 8);
  EXPECT_EQ(loads[1].bytes, 8);
}

TEST_F(TraceGraph, OfGroupsThatNothingDescribesSaysSo) {
  const NetworkShape shape = parse_network("FC(4)_SW(8)");
  const auto refusal = [&](const std::string& nodes) { return support::refusal([&] { place(trace(nodes), shape); }); };
  EXPECT_THAT(refusal(node(1, collective, 0, {}, all_reduce(8) + text("pg_name", "7"))),
              HasSubstr("node 1 (n1) at byte 8 is of process group '7', and nothing says which ranks that has; add "
                        "--communicator FILE.json with {\"7\": [0, 1, …]}"));
  const auto of = [&](const std::string& ranks) {
    return refusal(groups(R"([{"pg_name": "7", "ranks": )" + ranks + "}]") +
                   node(1, collective, 0, {}, all_reduce(8) + text("pg_name", "7")));
  };
  EXPECT_THAT(of("[0, 1, 4]"), HasSubstr("is of process group '7', whose ranks are no block of FC(4)_SW(8)"));
  EXPECT_THAT(of("[0, 32]"), HasSubstr("communicates with rank 32, and FC(4)_SW(8) has 32 NPUs"));
  EXPECT_THAT(refusal(node(1, collective, 0, {}, all_reduce(8) + flags("involved_dim", "\1"))),
              HasSubstr("says of 1 dimensions whether it spans them, and FC(4)_SW(8) has 2"));
  EXPECT_THAT(refusal(node(1, send, 0, {}, between(3, 40, 8))),
              HasSubstr("node 1 (n1) at byte 8 communicates with rank 40, and"));
  const auto wrong = [&](const std::string& nodes) {
    return support::refusal([&] { trace(nodes); }, ErrorKind::config);
  };
  const std::string one = node(1, compute, 1, {});
  EXPECT_THAT(wrong(one + groups("[{\"pg_name\": }]")), HasSubstr("has process groups that cannot be read"));
  EXPECT_THAT(wrong(one + groups(R"([{"pg_name": "1", "ranks": 1}])")), HasSubstr("has process groups that cannot be"));
  for (const auto* ranks : {"-1", "4294967296, 4294967297", "0.2, 1.9", "false, true", "0, 0, 1, 1", "\"0\""})
    EXPECT_THAT(wrong(one + groups(fmt::format(R"([{{"pg_name": "1", "ranks": [{}]}}])", ranks))),
                HasSubstr("a process group whose ranks are not whole numbers from 0 to 2147483647, each of them once"))
        << ranks;
  EXPECT_THAT(wrong(node(1, compute, 10'000'000'000'000'000, {})), HasSubstr("more than the 1e+18 of any step"));
}

// A device computes one thing at a time, a group does one collective; a message each way goes beside them.
TEST_F(TraceGraph, HasOneOfEachKindAtATime) {
  const NetworkShape shape = parse_network("SW(2)");
  const std::vector<double> byte_a_ns{1};
  const auto takes = [&](const std::string& nodes) {
    const StepGraph graph = step_graph(trace(nodes), shape);
    const StepTime path{.dimensions = 1, .terms = graph.terms, .cases = {longest_path(graph, byte_a_ns)}};
    return step_ns(path, byte_a_ns);
  };
  constexpr int receive = 6;
  EXPECT_EQ(takes(node(1, compute, 3, {}) + node(2, compute, 4, {})), 7000);
  EXPECT_EQ(takes(node(1, compute, 3, {}) + node(2, collective, 0, {}, all_reduce(4000))), 4000);
  EXPECT_EQ(takes(node(1, collective, 0, {}, all_reduce(4000)) + node(2, collective, 0, {}, all_reduce(500))), 4500);
  const std::string bytes = attribute("comm_size", int64_value, 6000);
  EXPECT_EQ(takes(node(1, send, 0, {}, bytes) + node(2, receive, 0, {}, bytes)), 6000);
  EXPECT_EQ(takes(node(1, send, 0, {}, bytes) + node(2, send, 0, {}, bytes)), 12'000);
  EXPECT_EQ(takes(node(1, receive, 0, {}, bytes) + node(2, compute, 1, {1})), 7000);
  // Behind what takes no time itself.
  constexpr int metadata = 1, load = 2;
  EXPECT_EQ(takes(node(1, collective, 0, {}, all_reduce(4000)) + node(2, load, 9, {1}) + node(3, metadata, 0, {2}) +
                  node(4, compute, 5, {3})),
            9000);
  const std::string of_host = attribute("is_cpu_op", bool_value, 1), of_device = attribute("is_cpu_op", bool_value, 0);
  EXPECT_EQ(takes(node(1, compute, 50, {}, of_host) + node(2, compute, 3, {1}, of_device)), 3000);
}

// What the test writes into a trace, and by its own words what the step takes: each node's bytes by dimension from the
// sums of Won et al., and the longest of all ways to the end.
struct Written {
  struct Node {
    std::vector<std::uint64_t> after = {};
    double compute_ns = 0;
    std::vector<double> bytes = {};  // by dimension, of FC(4)_SW(8)
    std::size_t chain = 0;           // of those that go one after another; 0: none
  };
  std::vector<Node> nodes;
  std::string trace;

  double end_of(std::size_t i, const std::vector<double>& gbps) const {
    double begin = 0;
    for (const std::uint64_t before : nodes[i].after) begin = std::max(begin, end_of(before, gbps));
    for (std::size_t before = i; nodes[i].chain > 0 && before-- > 0;)
      if (nodes[before].chain == nodes[i].chain) {
        begin = std::max(begin, end_of(before, gbps));
        break;
      }
    double moved = 0;
    for (std::size_t d = 0; d < nodes[i].bytes.size(); ++d)
      if (nodes[i].bytes[d] > 0) moved = std::max(moved, nodes[i].bytes[d] / gbps[d]);
    return begin + nodes[i].compute_ns + moved;
  }
  double step_ns(const std::vector<double>& gbps) const {
    double step = 0;
    for (std::size_t i = 0; i < nodes.size(); ++i) step = std::max(step, end_of(i, gbps));
    return step;
  }
};

Written random_trace(std::mt19937& random) {
  const auto from = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  Written written;
  std::vector<std::string> messages{groups(in_three_groups)};
  const int count = from(3, 14);
  for (int i = 0; i < count; ++i) {
    Written::Node made;
    for (int before = 0; before < i; ++before)
      if (from(0, 3) == 0) made.after.push_back(static_cast<std::uint64_t>(before));
    std::string attributes;
    int type = compute;
    std::uint64_t micros = 0;
    if (from(0, 1) == 0) {
      micros = static_cast<std::uint64_t>(from(0, 4));
      made.compute_ns = static_cast<double>(micros) * 1000;
      made.chain = micros > 0 ? 1 : 0;
    } else {
      type = collective;
      constexpr int sizes[][2] = {{4, 8}, {4, 1}, {1, 8}, {2, 2}};
      const int group = from(0, 3);
      const double m = from(1, 9) * std::pow(10, from(1, 5)), inner = sizes[group][0], outer = sizes[group][1];
      const int what = from(0, 3);
      constexpr std::uint64_t comm_types[] = {0, 7, 2, 6};  // all_reduce, reduce_scatter, all_gather, all_to_all
      if (what == 0) made.bytes = {2 * m * (inner - 1) / inner, 2 * m / inner * (outer - 1) / outer};
      if (what == 1) made.bytes = {m * (inner - 1) / inner, m / inner * (outer - 1) / outer};
      if (what == 2) made.bytes = {m * outer * (inner - 1), m * (outer - 1)};
      if (what == 3) made.bytes = {m * (inner - 1) / inner, m * (outer - 1) / outer};
      made.chain = 2 + static_cast<std::size_t>(group);
      attributes = kind(comm_types[what], static_cast<std::uint64_t>(m));
      if (group > 0) attributes += text("pg_name", std::to_string(group));
    }
    messages.push_back(node(static_cast<std::uint64_t>(i), type, micros, made.after, attributes));
    written.nodes.push_back(std::move(made));
  }
  std::ranges::shuffle(messages, random);
  written.trace = head;
  for (const auto& each : messages) written.trace += each;
  return written;
}

TEST_F(TraceGraph, IsAsLongAsTheLongestOfAllWays) {
  std::mt19937 random(19);
  const NetworkShape shape = parse_network("FC(4)_SW(8)");
  int with_several_paths = 0, communicating = 0;
  for (int round = 0; round < 150; ++round) {
    SCOPED_TRACE(round);
    const Written written = random_trace(random);
    if (written.step_ns({1, 1}) == 0) continue;
    const StepGraph graph = step_graph(read_chakra_graph(holding(written.trace)), shape);
    DesignProblem problem{.dollars_per_gbps = {3, 20}, .constraints = constraints({"b0+b1=60"}, 2)};
    problem.objective = round % 3 == 0 ? Objective::time_cost : Objective::time;
    const Design best = solve_overlapped(problem, graph);
    if (!best.certificate.step.terms.empty()) {
      expect_certified(problem, best);
      ++communicating;
    }
    with_several_paths += static_cast<int>(problem.step.cases.size() > 2);
    EXPECT_NEAR(best.time_ns, written.step_ns(best.bandwidth_gbps), 1e-9 * best.time_ns);
    // Nor does waiting for everything make it shorter.
    EXPECT_LE(best.time_ns, step_ns(one_after_another(graph), best.bandwidth_gbps) * (1 + 1e-12));
    for (int i = 0; i < 60; ++i) {
      const double b0 = i < 30 ? std::clamp(best.bandwidth_gbps[0] + (i - 15) * 0.05, 0.01, 59.99) : 2.0 * (i - 29) - 1;
      const std::vector<double> split{b0, 60 - b0};
      const double other = written.step_ns(split);
      const double objective =
          problem.objective == Objective::time ? other : other * (3 * b0 + 20 * (60 - b0)) / time_cost_scale;
      EXPECT_GE(objective, best.lower_bound * (1 - 1e-12)) << b0;
    }
  }
  EXPECT_GT(with_several_paths, 20);
  EXPECT_GT(communicating, 100);
}

}  // namespace
}  // namespace ranvier
