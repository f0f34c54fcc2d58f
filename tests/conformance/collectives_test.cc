// Every collective, by every algorithm, gives exactly what its definition says.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>

#include "conformance/collective_case.h"
#include "conformance/worlds.h"
#include "ranvier/kernel.h"
#include "ranvier/schedule.h"
#include "support/sanitized.h"

namespace ranvier::conformance {
namespace {

class CollectivesByWorld : public Worlds {};
class CollectivesInAllWorlds : public Worlds {};
class Collectives : public Ways {};

constexpr std::array memory_collectives{Collective::all_reduce, Collective::reduce,         Collective::broadcast,
                                        Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all,
                                        Collective::gather,     Collective::scatter};
constexpr std::array collectives_with_parts{Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all,
                                            Collective::gather, Collective::scatter};
constexpr std::array rooted_collectives{Collective::reduce, Collective::broadcast, Collective::gather,
                                        Collective::scatter};
constexpr std::array reducing_collectives{Collective::all_reduce, Collective::reduce, Collective::reduce_scatter};

bool reduces(Collective collective) {
  return std::ranges::find(reducing_collectives, collective) != reducing_collectives.end();
}

bool can_be_in_place(Collective collective) { return collective != Collective::all_to_all; }

bool is_allowed(ReduceOp op, DType type) {
  return is_defined(op, type) && !(op == ReduceOp::average && type == DType::boolean);
}

// Walks through the combinations of type, operator, root and alignment, one step per call, so that a test that varies
// something else meets all of them.
class Variety {
 public:
  Case next(Case c, Rank world) {
    ++step_;
    c.salt = step_;
    c.dtype = all_dtypes[step_ % all_dtypes.size()];
    c.root = static_cast<Rank>(step_ % static_cast<std::size_t>(world));
    c.misalign = step_ % 5 < 2 ? step_ % 8 : 0;
    if (!reduces(c.collective)) return c;
    c.op = all_reduce_ops[step_ * 7 % 11 % all_reduce_ops.size()];
    if (!is_allowed(c.op, c.dtype)) c.op = ReduceOp::sum;
    return c;
  }

 private:
  std::size_t step_ = 0;
};

TEST_P(CollectivesByWorld, every_algorithm_gives_the_exact_result_at_every_size) {
  const auto counts = support::sanitized ? std::vector<std::size_t>{0, 3, 1023}
                                         : std::vector<std::size_t>{0, 1, 2, 3, 7, 17, 1023, 4099};
  run([&](Communicator& comm) {
    Variety variety;
    for (const Collective collective : memory_collectives)
      for (const std::string& algorithm : algorithms_for(collective, comm.world()))
        for (const std::size_t count : counts)
          for (const bool in_place : {false, true}) {
            if (in_place && !can_be_in_place(collective)) continue;
            run_case(comm, variety.next(
                               {.collective = collective, .algorithm = algorithm, .count = count, .in_place = in_place},
                               comm.world()));
          }
  });
}

TEST_P(CollectivesByWorld, uneven_parts_reach_their_ranks) {
  run([](Communicator& comm) {
    Variety variety;
    for (const Collective collective : collectives_with_parts)
      for (const std::string& algorithm : algorithms_for(collective, comm.world())) {
        if (!find_algorithm(algorithm, collective).uneven) continue;
        for (const std::size_t count : {1, 2, 17, 1023})
          for (const bool in_place : {false, true}) {
            if (in_place && !can_be_in_place(collective)) continue;
            run_case(comm, variety.next({.collective = collective,
                                         .algorithm = algorithm,
                                         .count = count,
                                         .in_place = in_place,
                                         .uneven = true},
                                        comm.world()));
          }
      }
  });
}

TEST_P(Collectives, memory_that_peers_read_where_it_lies_gives_the_same) {
  if (GetParam() != "loopback" && GetParam() != "shm") GTEST_SKIP() << "ranks share no memory";
  for (const Rank world : {2, 5})
    run(world, [&](Communicator& comm) {
      Variety variety;
      for (const Collective collective : memory_collectives)
        for (const std::string& algorithm : algorithms_for(collective, comm.world()))
          for (const bool in_place : {false, true}) {
            if (in_place && !can_be_in_place(collective)) continue;
            Case c{.collective = collective, .algorithm = algorithm, .count = 5'003, .in_place = in_place};
            c.allocated = true;
            if (collective == Collective::all_reduce) c.count *= static_cast<std::size_t>(comm.world());
            run_case(comm, variety.next(c, comm.world()));
          }
      // Several slices, and more of them than there are slots.
      for (const bool in_place : {false, true})
        run_case(comm, {.algorithm = "direct",
                        .count = support::sanitized ? std::size_t{150'003} : std::size_t{1'000'003},
                        .in_place = in_place,
                        .allocated = true});
    });
}

TEST_P(Collectives, every_shape_of_grid_and_node_is_served) {
  for (const Rank world : {6, 8})
    run(world, [](Communicator& comm) {
      std::size_t salt = 0;
      const std::vector<std::string> dims = comm.world() == 6 ? std::vector<std::string>{"2x3", "3x2", "6"}
                                                              : std::vector<std::string>{"2x2x2", "4x2", "1x8"};
      std::vector<std::string> names;
      for (const std::string& each : dims)
        for (const char* const algorithm : {"torus:", "mesh:", "multi_dimensional:"}) names.push_back(algorithm + each);
      for (const char* const nodes : {"hierarchical:1", "hierarchical:2", "hierarchical:4", "hierarchical:5"})
        names.emplace_back(nodes);
      for (const std::string& algorithm : names)
        for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather})
          run_case(comm, {.collective = collective, .algorithm = algorithm, .count = 1023, .salt = ++salt});
    });
}

TEST_P(Collectives, a_communicators_own_algorithm_gives_way_where_it_cannot_serve) {
  for (const char* const own : {"binomial_tree", "ring", "torus:1x5", "hierarchical:3"}) {
    auto cluster = options();
    cluster.communicator.algorithm = own;
    support::run_ranks(
        5,
        [](Communicator& comm) {
          for (const Collective collective : memory_collectives)
            run_case(comm, {.collective = collective, .algorithm = "", .count = 33});
          for (const Collective collective : collectives_with_parts)
            run_case(comm, {.collective = collective, .algorithm = "", .count = 33, .uneven = true});
        },
        cluster);
  }
}

INSTANTIATE_TEST_SUITE_P(, CollectivesByWorld, testing::ValuesIn(worlds()), name_of_world);

// Sizes that no buffer of any transport holds, in several slices by every algorithm.
TEST_P(Collectives, large_vectors_stream_through) {
  const std::size_t count = simulated() ? 10'001 : support::sanitized ? 30'001 : 300'001;
  for (const Rank world : {2, 5})
    run(world, [count](Communicator& comm) {
      std::size_t salt = 0;
      for (const Collective collective : memory_collectives)
        for (const std::string& algorithm : algorithms_for(collective, comm.world())) {
          run_case(comm, {.collective = collective,
                          .algorithm = algorithm,
                          .count = reduces(collective) ? count : count / 4,
                          .dtype = salt % 2 == 0 ? DType::f32 : DType::u8,
                          .root = 1,
                          .in_place = can_be_in_place(collective),
                          .salt = salt});
          ++salt;
        }
    });
}

TEST_P(Collectives, every_operator_works_on_every_type_that_it_is_defined_for) {
  for (const Rank world : {3, 4})
    run(world, [](Communicator& comm) {
      std::size_t salt = 0;
      for (const DType dtype : all_dtypes)
        for (const ReduceOp op : all_reduce_ops) {
          if (!is_allowed(op, dtype)) continue;
          for (const Collective collective : reducing_collectives) {
            const auto names = algorithms_for(collective, comm.world());
            ++salt;
            run_case(comm, {.collective = collective,
                            .algorithm = names[salt % names.size()],
                            .count = 67,
                            .dtype = dtype,
                            .op = op,
                            .salt = salt});
          }
        }
    });
}

TEST_P(Collectives, every_type_is_moved_at_every_size) {
  run(3, [](Communicator& comm) {
    std::size_t salt = 0;
    for (const Collective collective : memory_collectives) {
      if (reduces(collective)) continue;
      const auto names = algorithms_for(collective, comm.world());
      for (const DType dtype : all_dtypes)
        for (const std::size_t count : {0, 1, 1023}) {
          ++salt;
          run_case(comm, {.collective = collective,
                          .algorithm = names[salt % names.size()],
                          .count = count,
                          .dtype = dtype,
                          .salt = salt});
        }
    }
  });
}

TEST_P(CollectivesInAllWorlds, every_type_is_served_at_every_size) {
  run([](Communicator& comm) {
    std::size_t salt = 0;
    for (const Collective collective : memory_collectives)
      for (const DType dtype : all_dtypes)
        for (const std::size_t count : {0, 1, 17, 1023})
          run_case(comm, {.collective = collective, .count = count, .dtype = dtype, .salt = ++salt});
  });
}

TEST_P(CollectivesInAllWorlds, nobody_leaves_a_barrier_before_everybody_has_come) {
  std::atomic<int> arrived = 0;
  run([&](Communicator& comm) {
    for (int round = 1; round <= 50; ++round) {
      ++arrived;
      comm.barrier();
      EXPECT_GE(arrived, round * comm.world());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, CollectivesInAllWorlds, testing::ValuesIn(all_worlds()), name_of_world);

TEST_P(Collectives, every_rank_can_be_root) {
  for (const Rank world : {5, 8})
    run(world, [](Communicator& comm) {
      std::size_t salt = 0;
      for (const Collective collective : rooted_collectives)
        for (const std::string& algorithm : algorithms_for(collective, comm.world()))
          for (Rank root = 0; root < comm.world(); ++root) {
            run_case(comm, {.collective = collective,
                            .algorithm = algorithm,
                            .count = 33,
                            .root = root,
                            .in_place = root % 2 == 0,
                            .salt = ++salt});
          }
    });
}

TEST_P(Collectives, the_named_members_do_what_the_request_does) {
  run(3, [](Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    const std::vector<float> mine(2, static_cast<float>(rank + 1));
    std::vector<float> two(2);
    std::vector<float> six(6);

    std::vector<float> data = mine;
    comm.all_reduce(data);
    EXPECT_EQ(data, (std::vector<float>{6, 6}));
    comm.all_reduce(data, {.op = ReduceOp::average, .algorithm = "ring"});
    EXPECT_EQ(data, (std::vector<float>{6, 6}));
    comm.reduce(mine, two, 1, {.op = ReduceOp::max});
    EXPECT_EQ(two, rank == 1 ? (std::vector<float>{3, 3}) : (std::vector<float>{0, 0}));
    data = mine;
    comm.broadcast(data, 2);
    EXPECT_EQ(data, (std::vector<float>{3, 3}));
    comm.all_gather(mine, six);
    EXPECT_EQ(six, (std::vector<float>{1, 1, 2, 2, 3, 3}));
    comm.reduce_scatter(six, two);
    EXPECT_EQ(two, (std::vector<float>(2, static_cast<float>(3 * (rank + 1)))));
    const std::vector<float> parts{mine[0], 0, mine[0], 1, mine[0], 2};
    comm.all_to_all(parts, six);
    const auto self = static_cast<float>(rank);
    EXPECT_EQ(six, (std::vector<float>{1, self, 2, self, 3, self}));
    std::vector<float> gathered(6, -1);
    comm.gather(mine, gathered, 0);
    EXPECT_EQ(gathered, rank == 0 ? (std::vector<float>{1, 1, 2, 2, 3, 3}) : std::vector<float>(6, -1));
    comm.scatter(parts, two, 2);
    EXPECT_EQ(two, (std::vector<float>{3, self}));
  });
}

// Real gradients are no whole numbers, and sums of floats depend on their order: still, no two ranks may differ.
TEST_P(Collectives, all_ranks_end_with_the_same_bits) {
  for (const Rank world : {3, 4, 6})
    run(world, [](Communicator& comm) {
      constexpr std::size_t count = 1531;
      for (const std::string& algorithm : algorithms_for(Collective::all_reduce, comm.world()))
        for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
          for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::product}) {
            std::mt19937 generator(static_cast<unsigned>(comm.rank()));
            std::normal_distribution<float> gradient(0, 1);
            std::vector<float> floats(count);
            for (float& value : floats) value = gradient(generator);
            std::vector<std::byte> data(count * size_of(dtype));
            auto* halves = reinterpret_cast<std::uint16_t*>(data.data());
            if (dtype == DType::f32) std::memcpy(data.data(), floats.data(), data.size());
            if (dtype == DType::f64) {
              const std::vector<double> doubles(floats.begin(), floats.end());
              std::memcpy(data.data(), doubles.data(), data.size());
            }
            if (dtype == DType::f16) kernel::to_f16(floats.data(), halves, count);
            if (dtype == DType::bf16) kernel::to_bf16(floats.data(), halves, count);
            comm.all_reduce({data.data(), count, dtype}, {.op = op, .algorithm = algorithm});

            std::vector<std::byte> all(data.size() * static_cast<std::size_t>(comm.world()));
            comm.all_gather({data.data(), data.size(), DType::u8}, {all.data(), all.size(), DType::u8});
            for (Rank rank = 0; rank < comm.world(); ++rank)
              ASSERT_EQ(
                  std::memcmp(all.data() + data.size() * static_cast<std::size_t>(rank), data.data(), data.size()), 0)
                  << "ranks " << comm.rank() << " and " << rank << " differ after " << name_of(op) << " of "
                  << name_of(dtype) << " by " << algorithm;
          }
    });
}

TEST_P(Collectives, as_many_bytes_arrive_as_are_sent_and_a_ring_sends_the_least_that_is_possible) {
  constexpr Rank world = 4;
  constexpr std::uint64_t bytes = 16384;
  std::atomic<std::uint64_t> sent = 0;
  std::atomic<std::uint64_t> received = 0;
  run(world, [&](Communicator& comm) {
    const Traffic before = comm.traffic();
    std::vector<float> data(bytes / 4, 1);
    comm.all_reduce(data, {.algorithm = "ring"});
    const Traffic after = comm.traffic();
    // 2 (w-1)/w of the vector, by Patarasu and Yuan, "Bandwidth optimal all-reduce algorithms", 2009.
    EXPECT_EQ(after.bytes_sent - before.bytes_sent, std::uint64_t{2} * (world - 1) * bytes / world);
    EXPECT_EQ(after.operations - before.operations, 1U);
    sent += after.bytes_sent;
    received += after.bytes_received;
  });
  EXPECT_EQ(sent, received);
}

INSTANTIATE_TEST_SUITE_P(, Collectives, testing::ValuesIn(support::all_ways()), name_of_way);

}  // namespace
}  // namespace ranvier::conformance
