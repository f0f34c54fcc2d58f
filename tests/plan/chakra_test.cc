// Chakra traces, written here byte by byte as the published schema has them, right and wrong.
#include <gmock/gmock.h>

#include "plan/chakra_writer.h"
#include "plan/temporary_file.h"
#include "ranvier/chakra.h"
#include "ranvier/error.h"
#include "ranvier/simulate.h"

namespace ranvier {
namespace {

using namespace chakra_writer;

class Chakra : public FileTest {};

// Node 2 is waited for by node 3; node 4, which only ends behind it, is not.
TEST_F(Chakra, CollectivesAreWaitedForWhereComputingDependsOnThem) {
  const std::string trace = head + node(4, collective, 0, {3}, all_reduce(2000)) + node(1, compute, 10, {}) +
                            node(2, collective, 0, {1}, all_reduce(4000)) + node(3, compute, 5, {2});
  const Workload workload = read_chakra_trace(holding(trace));
  ASSERT_EQ(workload.layers.size(), 4u);
  EXPECT_EQ(workload.layers.back().name, "n1");
  const auto step =
      simulate_step(workload, topology::star(2, {.bytes_per_second = 1e9, .latency = std::chrono::nanoseconds(0)}));
  EXPECT_NEAR(step.compute_ns, 15'000, 1e-6);
  EXPECT_NEAR(step.step_ns, 15'000 + 4000 + 2000, 1e-6);
}

TEST_F(Chakra, LeavesOutTheHostWhereADeviceComputes) {
  const auto on = [](bool host) { return attribute("is_cpu_op", bool_value, host ? 1 : 0); };
  const std::string trace =
      head + node(1, compute, 10, {}, on(true)) + node(2, compute, 7, {1}, on(false)) + node(3, compute, 5, {2});
  const Workload workload = read_chakra_trace(holding(trace));
  ASSERT_EQ(workload.layers.size(), 2u);
  EXPECT_EQ(workload.layers[1].weight_gradient.compute_ns, 7000);
  EXPECT_EQ(workload.layers[0].weight_gradient.compute_ns, 5000);
}

// Up to schema 1.0.1 callers have other numbers than nodes, so that nodes seem to call themselves and each other, and
// the host's call of a collective has its type, without a size.
TEST_F(Chakra, GoesByDataWhereCallersContradictIt) {
  const auto on = [](bool host) { return attribute("is_cpu_op", bool_value, host ? 1 : 0); };
  const auto caller = [](std::uint64_t id) { return number(4, id); };
  const std::string trace = head + node(1, compute, 3, {}, on(true) + caller(1)) +
                            node(2, compute, 10, {1}, on(false) + caller(4)) +
                            node(3, collective, 9, {1}, on(true) + caller(3)) +
                            node(4, collective, 0, {3, 2}, on(false) + all_reduce(4000) + caller(2));
  const ExecutionTrace graph = read_chakra_graph(holding(trace));
  ASSERT_EQ(graph.operations.size(), 4u);
  EXPECT_FALSE(graph.operations[2].communication.has_value());
  EXPECT_EQ(graph.operations[2].compute_ns, 0);
  EXPECT_THAT(graph.operations[3].after, testing::UnorderedElementsAre(1u, 2u));
  EXPECT_EQ(read_chakra_trace(holding(trace)).layers.size(), 2u);
}

// ASTRA-sim's traces name the other end alone; whose they are stands in the file's name.
TEST_F(Chakra, MessagesHaveTheRankOfTheFileAtOneEnd) {
  constexpr int receive = 6;
  const std::string size = attribute("comm_size", int64_value, 640);
  const std::string trace = head + node(1, send, 0, {}, size + attribute("comm_dst", int64_value, 7)) +
                            node(2, receive, 0, {}, size + attribute("comm_src", int64_value, 2));
  EXPECT_FALSE(read_chakra_graph(holding(trace)).operations[0].ends.has_value());
  std::filesystem::remove(path_);
  path_.replace_extension(".5.et");
  const ExecutionTrace graph = read_chakra_graph(holding(trace));
  EXPECT_EQ(graph.operations[0].ends, std::pair(Rank{5}, Rank{7}));
  EXPECT_EQ(graph.operations[1].ends, std::pair(Rank{2}, Rank{5}));
}

// As the symbolic tensor graphs of ASTRA-sim have them: 6.6e13 operations a second.
TEST_F(Chakra, OperationsTakeTimeWhereNothingWasTimed) {
  const std::string operations = attribute("num_ops", int64_value, std::uint64_t{60} << 40);
  const ExecutionTrace graph =
      read_chakra_graph(holding(head + node(1, compute, 0, {}, operations) + node(2, compute, 7, {}, operations)));
  EXPECT_NEAR(graph.operations[0].compute_ns, 1e9, 1);
  EXPECT_EQ(graph.operations[1].compute_ns, 7000);
}

TEST_F(Chakra, SendsAndAllToAllsAreRead) {
  const std::string size = attribute("comm_size", int64_value, 640);
  const std::string trace =
      head + node(1, send, 0, {}, size) + node(2, collective, 0, {}, attribute("comm_type", int64_value, 6) + size);
  const Workload workload = read_chakra_trace(holding(trace));
  ASSERT_EQ(workload.layers.size(), 2u);
  EXPECT_EQ(workload.layers[1].weight_gradient.communications[0].collective, Collective::send);
  EXPECT_EQ(workload.layers[0].weight_gradient.communications[0].collective, Collective::all_to_all);
}

// As mlcommons/chakra's converter writes what PyTorch and Kineto record: metadata without a version; callers as control
// dependencies, of which it removes those that nothing is ordered behind (the process above its threads); the order of
// launching as data dependencies; neither a start nor an order of what runs on the device; attributes and texts of
// which most say nothing here.
std::string recorded(std::uint64_t id, const std::string& name, int type, std::uint64_t micros, std::uint64_t caller,
                     const std::vector<std::uint64_t>& behind, bool of_host, const std::string& attributes = "") {
  constexpr int string_value = 29;
  const auto text = [](const std::string& key, const std::string& value) {
    return block(10, block(1, key) + block(string_value, value));
  };
  std::string order;
  for (const auto each : behind) order += varint(each);
  std::string usual;
  for (const char* key : {"rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid"})
    usual += attribute(key, int64_value, 1);
  const std::string tensors =
      block(1, "[[4, 3, 0, 1024, 4, 'cuda:0']]") + block(2, "[[1024]]") + block(3, "['Tensor']");
  return message(number(1, id) + block(2, name) + number(3, static_cast<std::uint64_t>(type)) +
                 block(4, varint(caller)) + (behind.empty() ? "" : block(5, order)) +
                 (micros > 0 ? number(7, micros) : "") + block(8, tensors) + block(9, tensors) + usual +
                 text("op_schema", "aten::mm(Tensor self, Tensor mat2) -> Tensor") +
                 attribute("is_cpu_op", bool_value, of_host ? 1 : 0) + attribute("stream", int64_value, 7) +
                 attributes + (attributes.empty() ? "" : text("pg_name", "0")));
}

TEST_F(Chakra, IsReadAsPyTorchAndKinetoRecordIt) {
  const std::string metadata = message(block(2, block(1, "schema") + block(29, "1.1.0-chakra.0.0.4")) +
                                       attribute("pid", 13, 4711) + attribute("start_ts", 13, 123456789));
  const std::string trace = metadata +
                            recorded(2, "[pytorch|profiler|execution_trace|thread]", compute, 0, 1, {}, true) +
                            recorded(3, "aten::mm", compute, 40, 2, {2}, true) +
                            recorded(4, "ampere_sgemm_128x64_nn", compute, 700, 3, {3}, false) +
                            recorded(5, "c10d::allreduce_", compute, 15, 2, {3}, true) +
                            recorded(6, "record_param_comms", compute, 9, 5, {5}, true) +
                            recorded(7, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", collective, 2500, 6,
                                     {6}, false, all_reduce(4'000'000)) +
                            recorded(8, "aten::mm", compute, 30, 2, {6}, true) +
                            recorded(9, "ampere_sgemm_128x64_nt", compute, 1300, 8, {8}, false) +
                            recorded(10, "ncclDevKernel_Broadcast_RING_LL", collective, 5, 8, {8}, false,
                                     attribute("comm_type", int64_value, 5) + attribute("comm_size", int64_value, 0));
  const Workload workload = read_chakra_trace(holding(trace));
  ASSERT_EQ(workload.layers.size(), 4u);
  EXPECT_EQ(workload.layers[3].name, "ampere_sgemm_128x64_nn");
  EXPECT_EQ(workload.layers[1].weight_gradient.compute_ns, 1'300'000);
  const auto step =
      simulate_step(workload, topology::star(2, {.bytes_per_second = 1e9, .latency = std::chrono::nanoseconds(0)}),
                    {.bucket_bytes = 1});  // as recorded
  EXPECT_NEAR(step.compute_ns, 2'000'000, 1e-6);
  // Behind the first kernel and beside the second.
  EXPECT_NEAR(step.step_ns, 700'000 + 4'000'000, 1e-6);
}

TEST_F(Chakra, SaysWhatIsWrongAndWhere) {
  const std::string whole = head + node(1, compute, 10, {});
  for (const auto& [trace, words] : std::initializer_list<std::pair<std::string, const char*>>{
           {"", "the metadata at byte 0"},
           {"layer 1\nlayer 2\n", "at byte"},
           {head, "there is no node"},
           {whole.substr(0, whole.size() - 1), "the node at byte 8 has 12 bytes, and the file ends after 11 of them"},
           {whole + node(1, compute, 1, {}), "two nodes have the number 1, at bytes 8 and 21"},
           {head + node(1, compute, 1, {9}), "node 1 (n1) at byte 8 depends on node 9, which is not there"},
           {head + node(1, compute, 1, {2}) + node(2, compute, 1, {1}), "waits for itself around a circle"},
           {head + node(1, collective, 0, {}, attribute("comm_type", int64_value, 0)),
            "node 1 (n1) at byte 8 communicates and has no attribute comm_size"},
           {head + node(1, collective, 0, {}, attribute("comm_size", int64_value, 4)), "no known comm_type"},
           {head + node(1, collective, 0, {}, all_reduce(2'000'000'000'000'000)),
            "node 1 (n1) at byte 8 communicates 2000000000000000 bytes, more than the 1e+15 of any collective"},
           {head + node(1, 2, 0, {}), "none of its nodes computes or communicates"}})
    try {
      read_chakra_trace(holding(trace));
      ADD_FAILURE() << words;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::config);
      EXPECT_THAT(error.what(), testing::HasSubstr(words));
    }
}

// Also between two fields, where what is left would be a message.
TEST_F(Chakra, IsNotReadWhereItIsCutOff) {
  const std::string one = head + node(1, compute, 10, {});
  const std::string whole = one + node(2, collective, 0, {1}, all_reduce(4000));
  for (std::size_t end = one.size() + 1; end < whole.size(); ++end)
    EXPECT_THROW(read_chakra_trace(holding(whole.substr(0, end))), Error) << end;
}

// Any damage ends in an error or in a workload, never in anything else.
TEST_F(Chakra, StandsDamage) {
  const std::string whole = head + node(1, compute, 10, {}) + node(2, collective, 0, {1}, all_reduce(4000));
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (const int bit : {0, 3, 7}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      try {
        EXPECT_FALSE(read_chakra_trace(holding(damaged)).layers.empty());
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::config);
      }
    }
}

}  // namespace
}  // namespace ranvier
