// Files in others' formats, right and wrong.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "plan/libra_cases.h"
#include "ranvier/design_files.h"
#include "ranvier/error.h"
#include "support/refusal.h"

namespace ranvier {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Import : public testing::Test {
 protected:
  ~Import() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path file(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }

  template <class Call>
  static std::string refusal(const Call& call) {
    return support::refusal(call, ErrorKind::config);
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("ranvier-import-" + std::to_string(getpid()));
};

// Two blocks of GPT-3 as LIBRA bundles them, shortened to the lines that send something and the rest of the time.
constexpr auto gpt3_text = R"(Q1 -1 9375000 NONE 0 9375000 ALLREDUCE 805306368 9375000 ALLREDUCE 452984832 10
concat1 -1 9375000 ALLREDUCE 805306368 9375000 ALLGATHER 50331648 9375000 NONE 0 10
X1W1b1 -1 37500000 NONE 0 37500000 ALLREDUCE 805306368 37500000 NONE 0 10
X1W2b2 -1 37500000 ALLREDUCE 805306368 37500000 NONE 0 37500000 NONE 0 10
Q2 -1 9375000 NONE 0 9375000 allreduce 805306368 9375000 NONE 0 10

concat2 -1 9375000 ALLREDUCE 805306368 9375000 ALLGATHER 50331648 9375000 NONE 0 10
X2W1b1 -1 37500000 NONE 0 37500000 ALLREDUCE 805306368 37500000 NONE 0 10
X2W2b2 -1 37500000 ALLREDUCE 805306368 37500000 NONE 0 37500000 NONE 0 10
rest -1 40649414 NONE 0 40649414 NONE 0 40649414 NONE 0 10
)";
constexpr auto network_text = R"(# 4D
Topology: [ Ring, FullyConnected, Ring, Switch ]
NpusCount: [ 4, 8, 4, 32 ]
CostDimension: [ InterChiplet, InterPackage, InterNode, InterPod ]
)";
constexpr auto communicator_text = R"(Forward: [ 4, 4, -1, -1 ]
InputGrad: [ 4, 4, -1, -1 ]
WeightGrad: [ -1, 2, 4, 32 ]
)";

TEST_F(Import, LibrasFilesGiveItsProblem) {
  const NetworkShape shape = read_libra_network(file("network.yml", network_text));
  EXPECT_EQ(to_string(shape), "RI(4)_FC(8)_RI(4)_SW(32)");
  const Workload workload = read_astra_workload(file("GPT_3.txt", gpt3_text), AstraGroups::elsewhere);
  EXPECT_EQ(workload.name, "GPT_3");
  const StepTime step =
      step_time(workload, read_libra_communicator(file("groups.yml", communicator_text), shape), shape);
  const StepTime known = gpt3_4d().step;
  EXPECT_EQ(step.cases[0].constant_ns, known.cases[0].constant_ns);
  const std::vector<double> split{300, 100, 60, 40};
  EXPECT_NEAR(step_ns(step, split), step_ns(known, split), 1e-3);
}

// Tensor groups of 16 NPUs in a row, and data groups of all that have the same place in theirs.
TEST_F(Import, LibrasGroupsAreRanks) {
  const NetworkShape shape = read_libra_network(file("network.yml", network_text));
  const auto groups = [&](const std::string& text) {
    return with_groups({}, read_libra_communicator(file("groups.yml", text), shape), shape).groups;
  };
  const auto gpt3 = groups(communicator_text);
  EXPECT_EQ(gpt3.at(Role::forward), (Axes{{.size = 16, .stride = 1}}));
  EXPECT_EQ(gpt3.at(Role::input_gradient), (Axes{{.size = 16, .stride = 1}}));
  EXPECT_EQ(gpt3.at(Role::weight_gradient), (Axes{{.size = 256, .stride = 16}}));
  // Where both are of all of a dimension they are the same NPUs there.
  const auto both = groups("Forward: [4, -1, 2, 32]\nInputGrad: [-1, -1, -1, -1]\nWeightGrad: [4, -1, 4, -1]\n");
  EXPECT_EQ(both.at(Role::forward), (Axes{{4, 1}, {2, 32}, {32, 128}}));
  EXPECT_EQ(both.at(Role::input_gradient), Axes{});
  EXPECT_EQ(both.at(Role::weight_gradient), (Axes{{4, 1}, {4, 32}}));
}

TEST_F(Import, LibrasGroupsMayBeAllOfALargeDimension) {
  for (const int size : {46400, 65536}) {
    const NetworkShape shape = parse_network(fmt::format("SW({})", size));
    const std::string text = fmt::format("Forward: [{0}]\nInputGrad: [{0}]\nWeightGrad: [{0}]\n", size);
    const auto groups = with_groups({}, read_libra_communicator(file("groups.yml", text), shape), shape).groups;
    EXPECT_EQ(groups.at(Role::weight_gradient), (Axes{{.size = size, .stride = 1}}));
  }
}

TEST_F(Import, HeaderLinesOfAstraSimSayWhoCommunicates) {
  const std::string layer = "a -1 1 ALLREDUCE 16 2 NONE 0 3 ALLREDUCE 8 10\r\n";
  const auto read = [&](const std::string& header, AstraGroups groups = AstraGroups::header) {
    return read_astra_workload(file("w.txt", header + "\t\t\r\n1\t\r\n\r\n# a comment\r\n" + layer), groups);
  };
  const Workload divided = read("HYBRID_TRANSFORMER\tmodel_parallel_NPU_group: 4");
  ASSERT_EQ(divided.layers.size(), 1u);
  EXPECT_EQ(divided.degrees.tensor, 4);
  EXPECT_EQ(divided.layers[0].forward.communications.at(0).role, Role::tensor);
  EXPECT_EQ(divided.layers[0].weight_gradient.communications.at(0).role, Role::data);
  const Workload by_pass = read("HYBRID_TRANSFORMER model_parallel_NPU_group: 4", AstraGroups::elsewhere);
  EXPECT_EQ(by_pass.degrees.tensor, 1);
  EXPECT_EQ(by_pass.layers[0].forward.communications.at(0).role, Role::forward);
  EXPECT_EQ(read("HYBRID_DLRM\t4").layers[0].forward.communications.at(0).role, Role::forward);
  EXPECT_THAT(refusal([&] { read("HYBRID_DATA_MODEL"); }),
              HasSubstr("w.txt, line 1, column 1: HYBRID_DATA_MODEL does not say how many NPUs divide the model"));
  EXPECT_EQ(read("HYBRID_DATA_MODEL", AstraGroups::elsewhere).layers.size(), 1u);
  EXPECT_THAT(refusal([&] { read("HYBRID_TRANSFORMER model_parallel_NPU_group: x"); }),
              HasSubstr("line 1, column 46: 'x' is no whole number"));
  EXPECT_THAT(refusal([&] { read("HYBRID_TRANSFORMER model_parallel_NPU_group: 0"); }), HasSubstr("from 1 to"));
  EXPECT_THAT(refusal([&] { read("HYBRID_TRANSFORMER"); }), HasSubstr("needs model_parallel_NPU_group:"));
  const auto without = [&](AstraGroups groups) { return read_astra_workload(file("w.txt", layer), groups); };
  EXPECT_EQ(without(AstraGroups::header_if_any).layers[0].forward.communications.at(0).role, Role::forward);
  EXPECT_THAT(support::refusal([&] { without(AstraGroups::header); }, ErrorKind::usage),
              HasSubstr("w.txt does not say which NPUs communicate; add --communicator FILE, or begin it with"));
}

// Layers from a checkpoint to the one that asks compute forward twice, as ASTRA-sim does. Headers may be longer than
// lines.
TEST_F(Import, ForwardPassesAgainFromCheckpoints) {
  const auto read = [&](const std::string& lists) {
    std::string text = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 4 " + lists + "\n4\n";
    for (int i = 0; i < 4; ++i) text += "a -1 10 ALLREDUCE 16 100 NONE 0 3 NONE 0 10\n";
    return read_astra_workload(file("w.txt", text), AstraGroups::header_if_any);
  };
  const Workload workload = read("ep: 1 pp: 1 vpp: 1 checkpoints: 2 0 2 checkpoint_initiates: 3 3 0 3");
  std::vector<double> backward;
  for (const Layer& layer : workload.layers) backward.push_back(layer.input_gradient.compute_ns);
  EXPECT_THAT(backward, ElementsAre(110, 100, 110, 110));
  EXPECT_EQ(workload.layers[2].input_gradient.communications.size(), 1u);
  EXPECT_EQ(workload.layers[1].input_gradient.communications.size(), 0u);
  EXPECT_THAT(refusal([&] { read("checkpoints: 2 0 2 checkpoint_initiates: 1 4"); }),
              HasSubstr("'4' is no whole number"));
  EXPECT_THAT(refusal([&] { read("checkpoints: 2 0"); }), HasSubstr("checkpoints: is to be followed by numbers"));
}

TEST_F(Import, CostsOfATierAreReplaced) {
  const CostTable table =
      read_libra_costs(file("cost.yml", "InterPod:\n  Link: 7.80004\n  Switch: 18.00004\n  Nic: 31.60004\n  Npu: 9\n"));
  EXPECT_THAT(unit_costs(parse_network("RI(4)_SW(8)"), table), ElementsAre(4, testing::DoubleNear(57.40012, 1e-9)));
}

TEST_F(Import, WrongFilesNameLineAndColumn) {
  const NetworkShape shape = parse_network("RI(4)_SW(8)");
  const auto astra = [&](const char* text) {
    return refusal([&] { read_astra_workload(file("w.txt", text), AstraGroups::header_if_any); });
  };
  EXPECT_THAT(astra("a -1 1 NONE 0 2 NONE 0 3 NONE 0\n"),
              HasSubstr("w.txt, line 1, column 31: a layer has 12 columns, and here are 11"));
  EXPECT_THAT(astra("a -1 1 NONE 0 2 NONE 0 3 NONE 0 10\nb -1 1 NONE 0 2 ALREDUCE 0 3 NONE 0 10\n"),
              HasSubstr("line 2, column 17: unknown collective 'ALREDUCE'; did you mean 'ALLREDUCE'?"));
  EXPECT_THAT(astra("a -1 -5 NONE 0 2 NONE 0 3 NONE 0 10\n"), HasSubstr("line 1, column 6: '-5' is not a number"));
  EXPECT_THAT(astra("a -1 1e308 NONE 0 2 NONE 0 3 ALLREDUCE 3 10\n"),
              HasSubstr("line 1, column 6: 1e308 ns are more than the 1e+18 of any step"));
  EXPECT_THAT(astra("a -1 5 NONE 0 2 NONE 0 3 ALLREDUCE 1e30 10\n"),
              HasSubstr("line 1, column 36: 1e30 bytes are more than the 1e+15 of any collective"));
  EXPECT_THAT(astra("a x 1 NONE 0 2 NONE 0 3 NONE 0 10\n"), HasSubstr("line 1, column 3: 'x' is not a number"));
  EXPECT_THAT(astra("a -1 1 NONE 0 2 NONE 0 3 NONE 0 NONE\n"), HasSubstr("column 33: 'NONE' is not a number"));
  EXPECT_THAT(astra(""), HasSubstr("there is no layer in it"));
  EXPECT_THAT(astra("a -1 \x1b\xff[2J NONE 0 2 NONE 0 3 NONE 0 10\n"), HasSubstr("'?\\xff[2J' is not a number"));
  EXPECT_THAT(astra("DATA\n2\na -1 1 NONE 0 2 NONE 0 3 NONE 0 10\n"),
              HasSubstr("line 2, column 1: 2 layers are to follow, and here are 1; is the file whole?"));

  const auto network = [&](const char* text) { return refusal([&] { read_libra_network(file("n.yml", text)); }); };
  EXPECT_THAT(network("Topology: [ Ring ]\nNpusCount: [ 4, 5 ]\nCostDimension: [ InterPod ]\n"),
              HasSubstr("n.yml, line 2, column 12: this list has 2 entries, and Topology has 1"));
  EXPECT_THAT(network("Topology: [ Rign ]\nNpusCount: [ 4 ]\nCostDimension: [ InterPod ]\n"),
              HasSubstr("line 1, column 13: unknown topology 'Rign'; did you mean 'Ring'?"));
  EXPECT_THAT(network("Topology: [ Ring ]\nNpusCount: [ x ]\nCostDimension: [ InterPod ]\n"),
              HasSubstr("line 2, column 14: a whole number is expected here"));
  EXPECT_THAT(network("Topology: [ Ring\n"), HasSubstr("n.yml, line 2, column 1"));
  EXPECT_THAT(network("Topology: [ Ring ]\n"), HasSubstr("the key NpusCount is missing"));
  EXPECT_THAT(network("just words"), HasSubstr("a map of keys to values is expected"));
  for (const char* cost : {"-3", "1e308", "1e-300", ".nan", ".inf"})
    EXPECT_THAT(refusal([&] { read_libra_costs(file("c.yml", fmt::format("InterPod:\n  Link: {}\n", cost))); }),
                HasSubstr("line 2, column 9: a cost is a number from 1e-06 to 1e+09, or 0"));
  EXPECT_THAT(refusal([&] {
                read_libra_communicator(file("g.yml", "Forward: [4, 9]\nInputGrad: [-1, -1]\nWeightGrad: [4, 8]\n"),
                                        shape);
              }),
              HasSubstr("line 1, column 14: 9 is neither -1 nor from 1 to the 8 NPUs"));
  EXPECT_THAT(refusal([&] { read_libra_network(folder_ / "absent.yml"); }), HasSubstr("absent.yml (No such file"));
}

// NPUs of full connections and switches serve a part of them as they serve all; those of a ring stand between others.
TEST_F(Import, CommunicatorsMayLeaveNpusOverButNotInRings) {
  const NetworkShape shape = parse_network("RI(6)_FC(8)_SW(10)");
  const auto groups = [&](const std::string& forward) {
    const auto path = file("g.yml", "InputGrad: [-1, -1, -1]\nForward: " + forward + "\nWeightGrad: [-1, -1, 10]\n");
    return read_libra_communicator(path, shape).of(Role::forward);
  };
  EXPECT_THAT(groups("[3, 3, 7]"), ElementsAre(3, 3, 7));
  EXPECT_THAT(groups("[1, -1, 10]"), ElementsAre(1, 1, 10));
  EXPECT_THAT(refusal([&] { groups("[4, 3, 7]"); }),
              HasSubstr("g.yml, line 2, column 11: groups of 4 do not divide the ring of 6 NPUs"));
  EXPECT_THAT(refusal([&] { groups("[0, 3, 7]"); }), HasSubstr("column 11: 0 is neither -1 nor from 1"));
  EXPECT_THAT(
      refusal([&] { read_libra_communicator(file("g.yml", "Forward: [-1, -1, -1]\nWieghtGrad: []\n"), shape); }),
      HasSubstr("line 2, column 1: unknown key of a communicator 'WieghtGrad'; did you mean 'WeightGrad'?"));

  // Three of eight, each with two of its seven links: 2/3 of m bytes twice, a third over each link.
  Workload workload{.name = "one", .degrees = {}, .layers = {{.name = "layer"}}};
  workload.layers[0].forward.communications = {{Collective::all_reduce, 2100, Role::forward}};
  Placement placement;
  placement.of(Role::forward) = groups("[-1, 3, -1]");
  const StepTime step = step_time(workload, placement, shape, {.effects = {.partial_groups = true}});
  EXPECT_NEAR(step_ns(step, std::vector<double>{1, 7, 1}), 2 * 2100 / 3.0, 1e-9);
}

TEST_F(Import, ProcessGroupsAreReadAndWrongOnesNamed) {
  const ProcessGroups groups = read_process_groups(file("g.json", R"({"1": [0, 1], "tp": [3, 2]})"));
  EXPECT_THAT(groups, ElementsAre(testing::Pair("1", ElementsAre(0, 1)), testing::Pair("tp", ElementsAre(3, 2))));
  const auto wrong = [&](const char* text) { return refusal([&] { read_process_groups(file("g.json", text)); }); };
  EXPECT_THAT(wrong("[1]"), HasSubstr("line 1, column 1: the file is a list of 1; expected an object that has a list"));
  EXPECT_THAT(wrong("{\"1\": []}"), HasSubstr("column 7: 1 is a list of 0; expected a list of one rank or more"));
  EXPECT_THAT(wrong("{\"1\": [0,\n -1]}"), HasSubstr("line 2, column 2: 1[1] is -1; expected a rank"));
  EXPECT_THAT(wrong("{\"1\": [0, 4294967296]}"), HasSubstr("1[1] is 4294967296; expected a rank"));
  EXPECT_THAT(wrong("{\"1\": [0.5]}"), HasSubstr("1[0] is 0.5; expected a rank"));
  EXPECT_THAT(wrong("{\"1\": [0, 2, 0]}"), HasSubstr("1[2] is 0; expected a rank that stands in its group once"));
}

TEST_F(Import, TrafficIsReadAndWrongTrafficNamed) {
  const StepTime step = read_traffic(
      file("t.json", R"({"compute_ns": 10, "terms": [{"weight": 3, "bytes": [8, 0]}, {"bytes": [0, 4]}]})"), 2);
  EXPECT_DOUBLE_EQ(step_ns(step, std::vector<double>{2, 4}), 10 + 3 * 4 + 1);
  const auto traffic = [&](const char* text) { return refusal([&] { read_traffic(file("t.json", text), 2); }); };
  EXPECT_THAT(traffic("{\n  \"terms\": [}\n"), HasSubstr("t.json, line 2, column 13: this is no JSON"));
  EXPECT_THAT(traffic("{\"compute_ns\":\n 1e999}"),
              HasSubstr("t.json, line 2, column 2: the number 1e999 is too large"));
  EXPECT_THAT(traffic("{\"compute_ns\": 1e99}"),
              HasSubstr("compute_ns is 1e+99; expected a number of ns from 0 to 1e24"));
  EXPECT_THAT(traffic("{\"terms\": [{\"bytes\": [1, 1], \"weight\": 1e-300}]}"),
              HasSubstr("column 40: terms[0].weight is 1e-300; expected a number from 1e-9 to 1e9, or 0"));
  EXPECT_THAT(traffic("\n[]"), HasSubstr("line 2, column 1: the file is a list of 0; expected an object"));
  EXPECT_THAT(traffic("{\"terms\": {}}"), HasSubstr("line 1, column 11: terms is an object; expected a list"));
  EXPECT_THAT(traffic("{\"terms\": [\n{\"bytes\": [1]}]}"),
              HasSubstr("line 2, column 11: terms[0].bytes is a list of 1; expected a list of 2 numbers"));
  EXPECT_THAT(traffic("{\"terms\": [{\"bytes\": [1, 2]},\n {\"weight\": 1}]}"),
              HasSubstr("line 2, column 2: terms[1].bytes is missing; expected a list of 2 numbers"));
  EXPECT_THAT(traffic("{\"compute_ns\": \"much\"}"),
              HasSubstr("column 16: compute_ns is \"much\"; expected a number of ns from 0"));
  EXPECT_THAT(traffic("{\"terms\": [{\"bytes\": [1, 1], \"wieght\": 2}]}"),
              HasSubstr("column 30: unknown key of terms[0] 'wieght'; did you mean 'weight'?"));
}

// Whatever stands before the wrong value is walked over: brackets and quotes in texts, lists in lists.
TEST_F(Import, PlacesInJsonAreFoundBehindAnything) {
  const auto place = [&](const std::string& text) { return refusal([&] { read_traffic(file("t.json", text), 2); }); };
  const std::string before =
      "\xEF\xBB\xBF{ \"compute_ns\" : 1 ,\n\"terms\": [ {\"weight\": 1.5e3, \"bytes\": [0, 1]},\n";
  EXPECT_THAT(place(before + "{\"bytes\": [1, -1]}]}"),
              HasSubstr("line 3, column 15: terms[1].bytes[1] is -1; expected a number of bytes from 0"));
  EXPECT_THAT(place(before + "{\"bytes\": [1, [\"]\", {\"\\\"}\": []}]], \"weight\": -3}]}"),
              HasSubstr("line 3, column 46: terms[1].weight is -3"));
  EXPECT_THAT(place(before + "{\"bytes\": [1, [\"]\", {\"\\\"}\": []}]], \"weight\": 3}]}"),
              HasSubstr("line 3, column 15: terms[1].bytes[1] is a list of 2"));
  EXPECT_THAT(place("{\"terms\": [], \"\\u0063ompute_ns\": null}"), HasSubstr("column 34: compute_ns is null"));
}

// Parsers take one of them in silence. Keys are equal as what they mean, in one object; texts are no keys.
TEST_F(Import, KeysThatStandTwiceAreRefused) {
  const auto json = [&](const std::string& text) { return refusal([&] { read_traffic(file("t.json", text), 2); }); };
  constexpr auto twice = "this key stands in the same object before";
  EXPECT_THAT(json("{\"compute_ns\": 1, \"compute_ns\": 1}"), HasSubstr("line 1, column 19: " + std::string(twice)));
  EXPECT_THAT(json("{\"compute_ns\": 1,\n\"terms\": [], \"\\u0063ompute_ns\": 1}"), HasSubstr("line 2, column 14: "));
  EXPECT_THAT(json("{\"terms\": [{\"bytes\": [1, 2], \"weight\": 1, \"bytes\": [1, 2]}]}"), HasSubstr("column 43: "));
  EXPECT_THAT(json("{\"x\": [[{\"a\": {\"b\": 0}, \"b\": 0, \"a\": 0}]]}"), HasSubstr("column 33: "));
  EXPECT_THAT(json(std::string("{}") + '\0' + "\"a\": 1"), HasSubstr("line 1, column 3: a byte of value 0"));
  EXPECT_THAT(json("\xEF\xBB\xBF{\"a,]}\": \"\\\"\", \"a,]}\": 0}"), HasSubstr(twice));
  const StepTime step = read_traffic(
      file("t.json", R"({"compute_ns": 5, "terms": [{"bytes": [8, 0]}, {"weight": 2, "bytes": [0, 4]}]})"), 2);
  EXPECT_DOUBLE_EQ(step_ns(step, std::vector<double>{2, 4}), 5 + 4 + 2);

  const auto yaml = [&](const char* text) { return refusal([&] { read_libra_costs(file("c.yml", text)); }); };
  EXPECT_THAT(yaml("InterPod:\n  Link: 1\nInterNode:\n  Link: 1\nInterPod:\n  Link: 2\n"),
              HasSubstr("c.yml, line 5, column 1: this key stands in the same map before"));
  EXPECT_THAT(yaml("InterPod:\n  Link: 1\n  Link: 2\n"), HasSubstr("line 3, column 3: this key"));
  EXPECT_DOUBLE_EQ(read_libra_costs(file("c.yml", "InterPod:\n  Link: 1\nInterNode:\n  Link: 3\n")).tiers[2].link, 3);
}

// Deep, long and many-lined values are described, not repeated.
TEST_F(Import, WrongValuesInJsonAreShort) {
  const auto sentence = [&](const std::string& text) {
    return refusal([&] { read_traffic(file("t.json", text), 2); });
  };
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  EXPECT_THAT(sentence("{\"compute_ns\": " + deep + "}"), HasSubstr("compute_ns is a list of 1;"));
  EXPECT_LT(sentence("{\"compute_ns\": \"" + std::string(1000, 'x') + "\"}").size(), 250u);
  EXPECT_THAT(sentence("{\"compute\\nns\": 1}"), HasSubstr("unknown key of the file 'compute\\nns'; did you mean"));
  EXPECT_THAT(sentence("{\"Größe\": 1}"), HasSubstr("unknown key of the file 'Größe'"));
}

}  // namespace
}  // namespace ranvier
