// What goes to one side comes from the other: neighbour exchange on grids of one to three dimensions, judged by
// arithmetic of the test's own.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>

#include "conformance/errors.h"
#include "conformance/worlds.h"
#include "support/sanitized.h"

namespace ranvier::conformance {
namespace {

struct Grid {
  std::vector<int> dims;
  std::vector<int> periods;

  std::string spec() const {
    return fmt::format("neighbor_exchange:{},periods={}", fmt::join(dims, "x"), fmt::join(periods, "x"));
  }
  std::vector<int> coordinates_of(int rank) const {
    std::vector<int> coordinates(dims.size());
    for (std::size_t d = dims.size(); d-- > 0; rank /= dims[d]) coordinates[d] = rank % dims[d];
    return coordinates;
  }
  // Nobody: -1.
  int beside(int rank, std::size_t direction) const {
    std::vector<int> coordinates = coordinates_of(rank);
    int& moved = coordinates[direction / 2];
    moved += direction % 2 == 1 ? 1 : -1;
    const int size = dims[direction / 2];
    if (periods[direction / 2] == 0 && (moved < 0 || moved == size)) return -1;
    moved = (moved + size) % size;
    int found = 0;
    for (std::size_t d = 0; d < dims.size(); ++d) found = found * dims[d] + coordinates[d];
    return found;
  }
};

// All ways to write `world` as a product of one to three sizes, with every choice of periods.
std::vector<Grid> grids_of(int world) {
  std::vector<std::vector<int>> shapes{{world}};
  for (int a = 1; a <= world; ++a) {
    if (world % a != 0) continue;
    shapes.push_back({a, world / a});
    for (int b = 1; b <= world / a; ++b)
      if (world / a % b == 0 && (a > 1 || b > 1)) shapes.push_back({a, b, world / a / b});
  }
  std::vector<Grid> grids;
  for (const auto& dims : shapes)
    for (unsigned chosen = 0; chosen < 1u << dims.size(); ++chosen) {
      Grid grid{dims, {}};
      for (std::size_t d = 0; d < dims.size(); ++d) grid.periods.push_back(static_cast<int>(chosen >> d & 1));
      grids.push_back(std::move(grid));
    }
  return grids;
}

constexpr std::int32_t untouched = -7;

std::int32_t value_of(int from, std::size_t direction, std::size_t i) {
  return static_cast<std::int32_t>(static_cast<std::size_t>(from) * 1000003 + direction * 100003 + i * 7);
}

// Elements that `from` sends in a direction. Uneven: many sizes, none among them.
std::size_t part(std::size_t count, bool uneven, int from, std::size_t direction) {
  return uneven ? count * ((static_cast<std::size_t>(from) * 3 + direction * 5 + 1) % 4) / 2 : count;
}

void exchange_and_check(Communicator& comm, const Grid& grid, std::size_t count, bool uneven) {
  const int rank = comm.rank();
  std::vector<std::int32_t> input, expected;
  std::vector<std::size_t> input_splits, output_splits;
  for (std::size_t direction = 0; direction < 2 * grid.dims.size(); ++direction) {
    input_splits.push_back(part(count, uneven, rank, direction));
    for (std::size_t i = 0; i < input_splits.back(); ++i) input.push_back(value_of(rank, direction, i));
    const int from = grid.beside(rank, direction);
    const std::size_t opposite = direction % 2 == 0 ? direction + 1 : direction - 1;
    output_splits.push_back(from < 0 ? count : part(count, uneven, from, opposite));
    for (std::size_t i = 0; i < output_splits.back(); ++i)
      expected.push_back(from < 0 ? untouched : value_of(from, opposite, i));
  }
  const std::vector<std::int32_t> before = input;
  std::vector<std::int32_t> output(expected.size(), untouched);
  const std::string spec = grid.spec();
  Request request{.collective = Collective::neighbor_exchange, .input = input, .output = output, .algorithm = spec};
  if (uneven) {
    request.input_splits = input_splits;
    request.output_splits = output_splits;
  }
  comm.run(request);
  EXPECT_EQ(output, expected) << "rank " << rank << ", " << spec << ", " << count << (uneven ? ", uneven" : "");
  EXPECT_EQ(input, before);
  if (testing::Test::HasFailure()) throw std::runtime_error("stopped at the first failure");
}

class NeighborsByWorld : public Worlds {};

TEST_P(NeighborsByWorld, get_what_was_sent_their_way_on_every_grid) {
  run([](Communicator& comm) {
    for (const Grid& grid : grids_of(comm.world()))
      for (const std::size_t count : {0, 1, 7, 1023})
        for (const bool uneven : {false, true}) exchange_and_check(comm, grid, count, uneven);
  });
}

INSTANTIATE_TEST_SUITE_P(, NeighborsByWorld, testing::ValuesIn(worlds()), name_of_world);

class Neighbors : public Ways {
 protected:
  // Every rank runs what `make` makes of its rank; at least one is told of a mismatch, all of them where there is a
  // control plane. `nothing_fits`: there is no part that anybody could have used.
  template <class Make>
  void expect_mismatch(Rank world, bool nothing_fits, Make make) const {
    std::atomic<int> told = 0;
    run(world, [&](Communicator& comm) {
      std::vector<std::int32_t> input(64, 1), output(64, untouched);
      std::vector<std::size_t> input_splits, output_splits;
      std::string algorithm;
      make(comm.rank(), algorithm, input_splits, output_splits);
      Request request{.collective = Collective::neighbor_exchange, .algorithm = algorithm};
      const auto sum = [](const auto& splits) { return std::accumulate(splits.begin(), splits.end(), std::size_t{0}); };
      request.input = {input.data(), input_splits.empty() ? 48 : sum(input_splits), DType::i32};
      request.output = {output.data(), output_splits.empty() ? 48 : sum(output_splits), DType::i32};
      request.input_splits = input_splits;
      request.output_splits = output_splits;
      request.timeout = patience();
      const auto error = error_of([&] {
        comm.run(request);
        comm.barrier({.timeout = patience()});  // for those whose neighbours agree with them
      });
      ASSERT_TRUE(error);
      if (error->kind() != ErrorKind::mismatch) {
        EXPECT_FALSE(connected()) << error->what();
        return;
      }
      ++told;
      EXPECT_THAT(error, throws(ErrorKind::mismatch, "neighbor_exchange"));
      if (nothing_fits) {
        EXPECT_EQ(output, std::vector<std::int32_t>(64, untouched)) << "used what it refused";
      }
    });
    EXPECT_GE(told, connected() ? world : 1);
  }
};

TEST_P(Neighbors, stream_large_parts) {
  const std::size_t count = simulated() ? 10'001 : support::sanitized ? 50'001 : 200'001;
  for (const Grid& grid : {Grid{{2}, {1}}, Grid{{2}, {0}}, Grid{{4}, {1}}, Grid{{2, 2}, {1, 0}}, Grid{{2, 3}, {1, 1}}})
    run(std::accumulate(grid.dims.begin(), grid.dims.end(), 1, std::multiplies<>()), [&](Communicator& comm) {
      exchange_and_check(comm, grid, count, false);
      exchange_and_check(comm, grid, count, true);
    });
}

// The group's own numbers count: here from the last of the world's ranks to the first, without one of them.
TEST_P(Neighbors, of_a_group_stand_in_grids_of_its_ranks) {
  if (!connected()) GTEST_SKIP() << "groups need a control plane";
  run(7, [](Communicator& comm) {
    const auto group = comm.split(comm.rank() == 3 ? -1 : 0, -comm.rank());
    if (!group) return;
    for (const Grid& grid : grids_of(6))
      for (const bool uneven : {false, true}) exchange_and_check(*group, grid, 33, uneven);
  });
}

TEST_P(Neighbors, stand_in_a_line_where_no_grid_is_named) {
  run(3, [](Communicator& comm) {
    const auto self = static_cast<float>(comm.rank());
    const std::vector<float> input{10 * self, 10 * self + 1};
    std::vector<float> output{-1, -2};
    comm.neighbor_exchange(input, output);
    EXPECT_EQ(output, (std::vector<float>{comm.rank() == 0 ? -1 : 10 * (self - 1) + 1,
                                          comm.rank() == 2 ? -2 : 10 * (self + 1)}));
  });
}

TEST_P(Neighbors, stand_in_the_grid_that_the_communicator_names) {
  auto cluster = options();
  cluster.communicator.algorithm = "neighbor_exchange:3,periods=1";
  support::run_ranks(
      3,
      [](Communicator& comm) {
        const std::vector<std::int32_t> input{comm.rank(), comm.rank()};
        std::vector<std::int32_t> output(2, untouched);
        comm.neighbor_exchange(input, output);
        EXPECT_EQ(output, (std::vector<std::int32_t>{(comm.rank() + 2) % 3, (comm.rank() + 1) % 3}));
        std::vector<std::int32_t> sum{1};
        comm.all_reduce(sum);  // which that algorithm does not build
        EXPECT_EQ(sum[0], 3);
      },
      cluster);
}

TEST_P(Neighbors, send_no_more_than_their_borders) {
  run(6, [](Communicator& comm) {
    const std::vector<float> input(4 * 100);
    std::vector<float> output(4 * 100);
    const std::uint64_t before = comm.traffic().bytes_sent;
    comm.neighbor_exchange(input, output, {.algorithm = "neighbor_exchange:2x3"});
    const std::uint64_t beside = comm.rank() % 3 == 1 ? 3 : 2;
    EXPECT_EQ(comm.traffic().bytes_sent - before, beside * 100 * sizeof(float));
  });
}

TEST_P(Neighbors, that_stand_in_different_grids_are_told) {
  const auto specs = [](const char* common, const char* of_last, Rank last) {
    return [=](Rank rank, std::string& algorithm, auto&, auto&) { algorithm = rank == last ? of_last : common; };
  };
  expect_mismatch(4, false, specs("neighbor_exchange:2x2", "neighbor_exchange:4x1", 3));
  expect_mismatch(4, false, specs("neighbor_exchange:2x2", "neighbor_exchange:2x2,periods=1x0", 3));
  expect_mismatch(2, true, specs("neighbor_exchange:2", "neighbor_exchange:2,periods=1", 1));
}

TEST_P(Neighbors, that_expect_other_sizes_are_told) {
  expect_mismatch(2, false, [](Rank rank, std::string& algorithm, auto& input_splits, auto& output_splits) {
    algorithm = "neighbor_exchange:2";
    input_splits = {8, 8};
    output_splits = rank == 0 ? std::vector<std::size_t>{8, 8} : std::vector<std::size_t>{9, 8};
  });
  // Two parts on one link: their sum is right, but which is which is not.
  for (const auto& [down, up] : {std::pair<std::size_t, std::size_t>{3, 5}, {8, 1}, {5, 0}})
    expect_mismatch(2, true, [down = down, up = up](Rank, std::string& algorithm, auto& sent, auto& received) {
      algorithm = "neighbor_exchange:2,periods=1";
      sent = {down, up};
      received = {down, up};  // what went down comes from above: must be {up, down}
    });
}

TEST_P(Neighbors, are_refused_what_cannot_be_meant) {
  run(4, [](Communicator& comm) {
    std::vector<float> input(10), output(10);
    const auto refusal = [&](const std::string& algorithm, bool in_place = false) {
      return error_of([&] { comm.neighbor_exchange(input, in_place ? input : output, {.algorithm = algorithm}); });
    };
    EXPECT_THAT(refusal("neighbor_exchange:3x2"), throws(ErrorKind::usage, "the world has 4"));
    EXPECT_THAT(refusal("neighbor_exchange:2x2"), throws(ErrorKind::usage, "4 directions cannot share evenly"));
    EXPECT_THAT(refusal("neighbor_exchange:4,periods=2"), throws(ErrorKind::usage, "periods=1x0"));
    EXPECT_THAT(refusal("ring"), throws(ErrorKind::usage, "these do: neighbor_exchange"));
    EXPECT_THAT(refusal("neighbor_exchange:4", true), throws(ErrorKind::usage, "overlap"));
    comm.neighbor_exchange(input, output);  // and the communicator goes on
  });
}

INSTANTIATE_TEST_SUITE_P(, Neighbors, testing::ValuesIn(support::all_ways()), name_of_way);

}  // namespace
}  // namespace ranvier::conformance
