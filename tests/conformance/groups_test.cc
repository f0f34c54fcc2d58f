// Communicators made from communicators.
#include <gtest/gtest.h>

#include "conformance/collective_case.h"
#include "conformance/errors.h"
#include "conformance/worlds.h"
#include "ranvier/schedule.h"

namespace ranvier::conformance {
namespace {

using namespace std::chrono_literals;

class Groups : public Ways {};

TEST_P(Groups, are_formed_by_color_and_ordered_by_key) {
  run(5, [](Communicator& comm) {
    // Odd ranks and even ranks, each in reverse.
    const auto group = comm.split(comm.rank() % 2, -comm.rank());
    ASSERT_NE(group, nullptr);
    EXPECT_EQ(group->world(), comm.rank() % 2 == 0 ? 3 : 2);
    EXPECT_EQ(group->rank(), (comm.world() - 1 - comm.rank()) / 2);
    std::vector<std::int32_t> members(static_cast<std::size_t>(group->world()));
    group->all_gather(std::vector<std::int32_t>{comm.rank()}, members);
    EXPECT_EQ(members, comm.rank() % 2 == 0 ? (std::vector<std::int32_t>{4, 2, 0}) : (std::vector<std::int32_t>{3, 1}));
  });
}

TEST_P(Groups, leave_out_whoever_has_a_negative_color) {
  run(4, [](Communicator& comm) {
    const auto group = comm.split(comm.rank() == 2 ? -1 : 7);
    ASSERT_EQ(group == nullptr, comm.rank() == 2);
    if (group) run_case(*group, {.count = 1000});
    run_case(comm, {.count = 1000});
  });
}

TEST_P(Groups, work_side_by_side_and_beside_the_whole) {
  run(4, [](Communicator& comm) {
    const auto row = comm.split(comm.rank() / 2);
    const auto column = comm.split(comm.rank() % 2);
    for (std::size_t salt = 0; salt < 20; ++salt) {
      run_case(*row, {.collective = Collective::reduce_scatter, .count = 64, .salt = salt});
      run_case(*column, {.count = 64, .salt = salt});
      run_case(*row, {.collective = Collective::all_gather, .count = 64, .salt = salt});
      if (salt % 5 == 0) run_case(comm, {.count = 9, .salt = salt});
    }
  });
}

TEST_P(Groups, have_every_collective_also_of_uneven_parts) {
  run(5, [](Communicator& comm) {
    const auto group = comm.split(comm.rank() == 1 ? -1 : comm.rank() % 2, -comm.rank());
    if (!group) return;
    std::size_t salt = 0;
    for (const Collective collective :
         {Collective::all_reduce, Collective::reduce, Collective::broadcast, Collective::all_gather,
          Collective::reduce_scatter, Collective::all_to_all, Collective::gather, Collective::scatter})
      for (const std::string& algorithm : algorithms_for(collective, group->world()))
        for (const bool uneven : {false, true}) {
          const bool has_parts = collective != Collective::all_reduce && collective != Collective::reduce &&
                                 collective != Collective::broadcast;
          if (uneven && (!has_parts || !find_algorithm(algorithm, collective).uneven)) continue;
          run_case(*group, {.collective = collective,
                            .algorithm = algorithm,
                            .count = 100,
                            .root = group->world() - 1,
                            .uneven = uneven,
                            .salt = ++salt});
        }
    std::vector<float> halo(2, static_cast<float>(group->rank())), around(2, -1);
    group->neighbor_exchange(halo, around);
    const bool is_last = group->rank() + 1 == group->world();
    EXPECT_EQ(around, (std::vector<float>{static_cast<float>(group->rank() - 1),
                                          is_last ? -1 : static_cast<float>(group->rank() + 1)}));
  });
}

TEST_P(Groups, can_be_split_again_and_outlive_what_they_were_made_from) {
  run(4, [](Communicator& comm) {
    auto group = comm.split(comm.rank() / 2);
    auto single = group->split(group->rank());
    EXPECT_EQ(single->world(), 1);
    auto again = comm.split(0, -comm.rank());
    group.reset();
    run_case(*single, {.count = 100});
    run_case(*again, {.count = 100});
  });
}

// Whoever reads an error looks for a worker by its number among all: here the last two of four are a group, and then
// once more, the other way round.
TEST_P(Groups, name_ranks_by_their_numbers_in_the_world_too) {
  run(4, [](Communicator& comm) {
    const auto half = comm.split(comm.rank() / 2);
    const auto turned = half->split(0, -half->rank());
    float value = 0;
    const auto nothing_comes = [&](Communicator& group, Rank from) {
      return error_of([&] { group.start_recv(TypedSpan(&value, 1, DType::f32), from, 0, 50ms).wait(); });
    };
    if (comm.rank() != 3) return comm.barrier();
    const auto error = nothing_comes(*turned, 1);
    EXPECT_THAT(error, throws(ErrorKind::timeout, "rank 3 (0 of its group) waited 0.05 s for rank 2 (1 of its group)"));
    EXPECT_THAT(error, throws(ErrorKind::timeout, "recv of 4 B from rank 2 (1 of its group)"));
    EXPECT_THAT(error->flight_record(), testing::HasSubstr("recv with rank 2 (1 of its group)"));
    EXPECT_EQ(error->culprit(), 1) << "as the group numbers its ranks";
    EXPECT_THAT(nothing_comes(*half, 0),
                throws(ErrorKind::timeout, "rank 3 (1 of its group) waited 0.05 s for rank 2 (0 of its group)"));
    comm.barrier();
  });
}

TEST_P(Groups, that_disagree_are_told_who_they_are_in_the_world) {
  run(4, [](Communicator& comm) {
    const auto half = comm.split(comm.rank() / 2);
    std::vector<float> data(8 + static_cast<std::size_t>(comm.rank()));
    const bool upper = comm.rank() >= 2;
    const auto error = error_of([&] { half->all_reduce(data); });
    comm.barrier();
    EXPECT_THAT(error, throws(ErrorKind::mismatch, upper ? "rank 3 (1 of its group)" : "rank 1"));
    EXPECT_THAT(error, throws(ErrorKind::mismatch, upper ? "rank 2 (0 of its group)" : "rank 0"));
  });
}

// Dims are of one world: a group of another size goes on with the algorithm's own choice.
TEST_P(Groups, of_another_size_keep_the_algorithm_without_its_dims) {
  auto cluster = options();
  cluster.communicator.algorithm = "torus:2x3";
  support::run_ranks(
      6,
      [](Communicator& comm) {
        const auto group = comm.split(comm.rank() % 3 == 0 ? 0 : 1);
        EXPECT_EQ(group->options().algorithm, "torus");
        run_case(*group, {.algorithm = "", .count = 100});
        run_case(comm, {.algorithm = "", .count = 100});
      },
      cluster);
}

INSTANTIATE_TEST_SUITE_P(, Groups, testing::ValuesIn(support::connected_ways()), name_of_way);

TEST(GroupsOverATransport, are_refused_with_the_way_to_get_them) {
  support::run_ranks(2, [](Communicator& comm) {
    EXPECT_THAT(error_of([&] { comm.split(0); }), throws(ErrorKind::usage, "connect"));
  });
}

}  // namespace
}  // namespace ranvier::conformance
