// The files between recording, planning and training: read as they were written, and refused with line and column.
#include <gmock/gmock.h>

#include <limits>

#include "plan/temporary_file.h"
#include "ranvier/error.h"
#include "ranvier/plan_file.h"
#include "ranvier/workload_file.h"

namespace ranvier {
namespace {

using testing::HasSubstr;

class WorkloadFile : public FileTest {};
class PlanFile : public FileTest {};

TEST_F(WorkloadFile, HoldsEveryReadyMadeWorkload) {
  for (const auto name : workload_names()) {
    Workload made = make_workload(name);
    made.idle_ns = 1234;
    const std::string text = to_toml(made, "Of a test.");
    const Workload read = read_workload(holding(text));
    EXPECT_EQ(to_toml(read, "Of a test."), text) << name;
    EXPECT_EQ(read.layers.size(), made.layers.size()) << name;
    EXPECT_EQ(read.degrees.pipeline, made.degrees.pipeline);
    EXPECT_EQ(read.fills, made.fills) << name;
  }
  EXPECT_GT(make_workload("llama3-405b").fills, 0);
}

// FSDP: of twice as many replicas each has half of the parameters, and all of them are gathered by everybody as before.
TEST_F(WorkloadFile, IsRescaledToOtherWorlds) {
  Workload recorded{.degrees = {.tensor = 2}, .layers = {{.name = "a"}}, .recorded_npus = 4};
  recorded.layers[0].forward.communications = {{Collective::all_gather, 1000, Role::data},
                                               {Collective::all_gather, 300, Role::tensor}};
  recorded.layers[0].weight_gradient.communications = {{Collective::reduce_scatter, 2000, Role::data}};
  const Workload read = read_workload(holding(to_toml(recorded, "Of a test.")));
  const NetworkShape shape = parse_network("FC(2)_SW(16)");
  const Workload larger = rescaled(read, shape.npus());
  const auto sent = [&](const Communication& each) {
    return bytes_by_dimension(each.collective, each.bytes, place(larger.degrees, shape).of(each.role));
  };
  EXPECT_THAT(sent(larger.layers[0].forward.communications[0]), testing::ElementsAre(0, 2000.0 * 15 / 16));
  EXPECT_THAT(sent(larger.layers[0].forward.communications[1]), testing::ElementsAre(300, 0));
  EXPECT_THAT(sent(larger.layers[0].weight_gradient.communications[0]), testing::ElementsAre(0, 2000.0 * 15 / 16));
  Workload by_hand = read;
  by_hand.recorded_npus = 0;
  EXPECT_EQ(rescaled(by_hand, 32).layers[0].forward.communications[0].bytes, 1000);
}

TEST_F(WorkloadFile, KeepsAnyName) {
  Workload workload{.name = "a \"quoted\" \\ name\n", .layers = {{.name = "1"}}};
  EXPECT_EQ(read_workload(holding(to_toml(workload, "Of a test."))).name, workload.name);
}

TEST_F(WorkloadFile, SaysWhatIsWrongAndWhere) {
  const std::string layer = "[[layer]]\nname = \"a\"\n";
  const std::string communication = layer + "communications = [{ pass = \"forward\", collective = \"all_reduce\", ";
  for (const auto& [text, words] : std::initializer_list<std::pair<std::string, const char*>>{
           {"", "there is no [[layer]]"},
           {"name = 1\n" + layer, "line 1, column 8: a text in quotes"},
           {"laier = 1\n", "line 1, column 1: unknown key of a workload 'laier'; did you mean 'layer'?"},
           {"layer = 1\n", "layer is a list"},
           {layer + "forward_ns = -1\n", "line 3, column 14: a number that is at least 0"},
           {layer + "forward_ns = 1e300\n", "line 3, column 14: a number from 0 to 1e+18"},
           {layer + "forward_us = 1\n", "did you mean 'forward_ns'?"},
           {layer + "communications = [1]\n", "a communication is a table"},
           {communication + "role = \"data\" }]\n", "the key bytes is missing in a communication"},
           {communication + "bytes = 1e30, role = \"data\" }]\n", "line 3, column 74: a number from 0 to 1e+15"},
           {communication + "bytes = 1, role = \"date\" }]\n", "unknown role 'date'; did you mean 'data'?"},
           {layer +
                "communications = [{ pass = \"forward\", collective = \"all_reduse\", bytes = 1, role = \"data\" }]\n",
            "did you mean 'all_reduce'?"},
           {layer + "communications = [{ pass = \"forward\", collective = \"barrier\", bytes = 1, role = \"data\" }]\n",
            "line 3, column 52: a barrier sends nothing; leave it out"},
           {layer +
                "communications = [{ pass = \"foward\", collective = \"all_reduce\", bytes = 1, role = \"data\" }]\n",
            "did you mean 'forward'?"},
           {"[degrees]\ntensor = 0\n" + layer, "line 2, column 10: a whole number from 1"}})
    try {
      read_workload(holding(text));
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::config);
      EXPECT_THAT(error.what(), HasSubstr(words)) << text;
    }
}

Plan a_plan() {
  return {.workload = "recorded/workload.toml",
          .network = "star",
          .link_gbit = 1.5,
          .latency_us = 20,
          .ranks = 4,
          .transport = "tcp",
          .compress = "hadamard:32+int4",
          .sync = "local:16",
          .placement = {0, 2, 1, 3},
          .bucket_bytes = 1'000'000,
          .all_reduce = {{.up_to = 4096, .algorithm = "one_round"},
                         {.up_to = std::numeric_limits<std::size_t>::max(), .algorithm = "torus:2x2"}},
          .step_ns = 2e6,
          .compute_ns = 1e6,
          .exposed_communication_ns = 1e6,
          .because = {"at 1 Gbit/s \"int8\" gains 4 %: on"}};
}

TEST_F(PlanFile, IsReadAsItWasWritten) {
  const Plan read = read_plan(holding(to_toml(a_plan())));
  EXPECT_EQ(to_toml(read), to_toml(a_plan()));
  ASSERT_EQ(read.all_reduce.size(), 2u);
  EXPECT_EQ(read.all_reduce[0].up_to, 4096u);
  EXPECT_EQ(read.all_reduce[1].up_to, std::numeric_limits<std::size_t>::max());
  EXPECT_EQ(read.because, a_plan().because);
  EXPECT_EQ(read.placement, a_plan().placement);
  EXPECT_EQ(read.sync, "local:16");
  EXPECT_FALSE(read.unequal.any());
  EXPECT_EQ(read.link_gbit, 1.5);
}

TEST_F(PlanFile, KeepsHowUnequalReplicasAre) {
  Plan plan = a_plan();
  plan.unequal = {.speeds = {1, 0.1, 0.123456789},
                  .jitter_share = 0.05,
                  .jitter_factor = 4,
                  .stragglers = {{.worker = 2, .from = 100, .to = 200, .factor = 4},
                                 {.worker = 0, .from = 1, .to = 2, .factor = 1.5}}};
  const UnequalWorkers read = read_plan(holding(to_toml(plan))).unequal;
  EXPECT_EQ(read.speeds, plan.unequal.speeds);
  EXPECT_EQ(read.jitter_share, 0.05);
  EXPECT_EQ(read.jitter_factor, 4);
  ASSERT_EQ(read.stragglers.size(), 2u);
  EXPECT_EQ(read.stragglers[0].to, 200u);
  EXPECT_EQ(read.stragglers[1].factor, 1.5);
}

TEST_F(PlanFile, SaysWhatIsWrongAndWhere) {
  const std::string least = "ranks = 2\nbucket_bytes = 4\n[prediction]\nstep_ns = 1\n";
  EXPECT_EQ(read_plan(holding(least)).compress, "none");
  for (const auto& [text, words] : std::initializer_list<std::pair<std::string, const char*>>{
           {"ranks = 2\n", "the key bucket_bytes is missing in a plan"},
           {"ranks = 2\nbucket_bytes = 4\n", "the key prediction is missing"},
           {"bucket_byte = 2\n", "did you mean 'bucket_bytes'?"},
           {least + "[[all_reduce]]\nalgorithm = \"rnig\"\n",
            "line 6, column 13: unknown algorithm 'rnig'; did you mean 'ring'?"},
           {least + "[[all_reduce]]\nalgorithm = \"ring\"\n[[all_reduce]]\nalgorithm = \"ring\"\n",
            "sizes have to rise"},
           {least + "[[all_reduce]]\nup_to_bytes = 4\n", "the key algorithm is missing"},
           {"sync = \"lokal:4\"\n" + least, "line 1, column 8: unknown"},
           {"link_gbit = 0\n" + least, "line 1, column 13: a number of Gbit/s from 1e-06 to 1e+06"},
           {"latency_us = 1e17\n" + least, "line 1, column 14: a number from 0 to 1e+06 is expected here"},
           {least + "speeds = \"1,2\"\n", "line 5, column 10: --speeds '1,2' are not numbers from 0.001 to 1"},
           {"placement = [0, 0]\n" + least, "line 1, column 17: place 0 is given to two ranks"},
           {"placement = [1, 0]\n" + least, "line 1, column 13: rank 0, where all meet, stays in its own place"},
           {"placement = [0]\n" + least, "line 1, column 13: a placement of 2 ranks has so many places"},
           {"placement = [0, 2]\n" + least, "line 1, column 17"},
           {"[[link]]\nfrom = 0\n", "(a plan is what ranvier plan --output writes)"},
           {"no plan", "(a plan is what ranvier plan --output writes)"}})
    try {
      read_plan(holding(text));
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::config);
      EXPECT_THAT(error.what(), HasSubstr(words)) << text;
    }
}

}  // namespace
}  // namespace ranvier
