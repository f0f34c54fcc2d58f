// The checker of benchmarks: right results pass, and each wrong element is counted.
#include "bench/pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <ostream>
#include <utility>
#include <vector>

#include "ranvier/kernel.h"

namespace ranvier::bench {
namespace {

using Buffer = std::vector<std::byte>;

struct Case {
  Job job;
  Rank world;
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << to_line(c.job) << " on " << c.world << " ranks";
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto collective :
       {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter, Collective::broadcast,
        Collective::all_gather, Collective::all_to_all, Collective::gather, Collective::scatter, Collective::send})
    for (const auto dtype : all_dtypes)
      for (const auto op : all_reduce_ops) {
        if (!reduces(collective) && op != ReduceOp::sum) continue;
        if (!is_defined(op, dtype) || (dtype == DType::boolean && op == ReduceOp::average)) continue;
        for (const Rank world : {1, 2, 3, 40}) {
          Job job{.collective = collective, .dtype = dtype, .op = op, .seed = 5};
          job.count = job_count(job, 800 * size_of(dtype), world);
          cases.push_back({job, world});
          if (!has_root(collective) || world == 1) continue;
          job.root = world - 1;
          cases.push_back({job, world});
        }
      }
  return cases;
}

Buffer input_of(const Case& c, Rank rank) {
  Buffer bytes(shape_of(c.job, rank, c.world).input * size_of(c.job.dtype));
  fill_input(c.job, rank, c.world, bytes.data());
  return bytes;
}

// The elementwise reduction of all inputs, rank by rank, forwards or backwards.
Buffer reduction(const Case& c, bool backwards) {
  std::vector<Buffer> inputs;
  for (Rank rank = 0; rank < c.world; ++rank) inputs.push_back(input_of(c, backwards ? c.world - 1 - rank : rank));
  Buffer result = inputs[0];
  const std::size_t count = result.size() / size_of(c.job.dtype);
  for (Rank rank = 1; rank < c.world; ++rank)
    kernel::reduce(c.job.op, c.job.dtype, result.data(), result.data(), inputs[static_cast<std::size_t>(rank)].data(),
                   count, rank + 1 == c.world ? c.world : 0);
  return result;
}

Buffer part_of(const Buffer& bytes, Rank part, Rank parts) {
  const std::size_t length = bytes.size() / static_cast<std::size_t>(parts);
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(length) * part;
  return {begin, begin + static_cast<std::ptrdiff_t>(length)};
}

// What the collective's definition says `rank` ends with.
Buffer output_of(const Case& c, Rank rank, bool backwards = false) {
  if (shape_of(c.job, rank, c.world).output == 0) return {};
  if (c.job.collective == Collective::reduce_scatter) return part_of(reduction(c, backwards), rank, c.world);
  if (reduces(c.job.collective)) return reduction(c, backwards);
  if (c.job.collective == Collective::broadcast) return input_of(c, c.job.root);
  if (c.job.collective == Collective::scatter) return part_of(input_of(c, c.job.root), rank, c.world);
  if (c.job.collective == Collective::send) return input_of(c, (rank + c.world - 1) % c.world);
  Buffer result;
  for (Rank from = 0; from < c.world; ++from) {
    Buffer part = input_of(c, from);
    if (c.job.collective == Collective::all_to_all) part = part_of(part, rank, c.world);
    result.insert(result.end(), part.begin(), part.end());
  }
  return result;
}

TEST(Pattern, PassesWhatTheDefinitionOfTheCollectiveGivesInAnyOrderOfReduction) {
  for (const auto& c : all_cases())
    for (const Rank rank : {0, c.world - 1})
      for (const bool backwards : {false, true}) {
        const Buffer output = output_of(c, rank, backwards);
        ASSERT_EQ(count_wrong_output(c.job, rank, c.world, output.data()), 0) << c << ", rank " << rank;
      }
}

TEST(Pattern, CountsEachWrongElementOnce) {
  for (const auto& c : all_cases()) {
    Buffer output = output_of(c, c.job.root);
    const std::size_t size = size_of(c.job.dtype);
    for (const std::size_t element : {std::size_t{0}, std::size_t{17}, output.size() / size - 1})
      output[element * size + size - 1] ^= std::byte{1};  // the byte that no rounding explains
    const bool tiny = output.size() / size < 19;
    ASSERT_EQ(count_wrong_output(c.job, c.job.root, c.world, output.data()), tiny ? 2 : 3) << c;
  }
}

TEST(Pattern, RefusesTheResultOfAnotherJob) {
  for (auto c : all_cases()) {
    const Buffer output = output_of(c, c.job.root);
    ++c.job.seed;
    // Zeros for most ranks and minima of many agree by chance; what moves data never does everywhere.
    ASSERT_TRUE(count_wrong_output(c.job, c.job.root, c.world, output.data()) > 0 ||
                (reduces(c.job.collective) && c.world == 40))
        << c;
  }
}

// Twice the own value in place of a missing one's sum: what a sum that tolerates loss does.
TEST(Pattern, MeasuresHowFarASumOfCentredValuesIsOff) {
  const Case c{{.count = 8191, .fill = Fill::centred, .seed = 3}, 2};
  const Buffer exact = reduction(c, false);
  EXPECT_EQ(error_of_output(c.job, c.world, exact.data()), 0);
  EXPECT_EQ(count_wrong_output(c.job, 0, c.world, exact.data()), 0);
  std::vector<float> own(c.job.count), sum(c.job.count);
  const Buffer input = input_of(c, 0);
  std::memcpy(own.data(), input.data(), input.size());
  EXPECT_NEAR(std::accumulate(own.begin(), own.end(), 0.0) / static_cast<double>(own.size()), 0, 0.1);
  std::memcpy(sum.data(), exact.data(), exact.size());
  for (std::size_t i = 0; i < sum.size(); i += 100) sum[i] = 2 * own[i];
  EXPECT_NEAR(error_of_output(c.job, c.world, sum.data()), 0.1, 0.03) << "the root of a hundredth";
  EXPECT_EQ(count_wrong_output(c.job, 0, c.world, sum.data()), 0);
  sum[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(count_wrong_output(c.job, 0, c.world, sum.data()), 1);
  EXPECT_TRUE(std::isfinite(error_of_output(c.job, c.world, sum.data())));
  Job right_or_wrong = c.job;
  right_or_wrong.fill = Fill::varied;
  EXPECT_EQ(error_of_output(right_or_wrong, c.world, sum.data()), 0);
}

TEST(Pattern, RefusesAPartInTheWrongPlace) {
  Case c{{.collective = Collective::all_gather, .count = 4096}, 4};
  Buffer output = output_of(c, c.job.root);
  std::swap_ranges(output.begin(), output.begin() + 4096, output.begin() + 4096);
  EXPECT_GT(count_wrong_output(c.job, 0, c.world, output.data()), 2000);
}

// Row 1 of a grid of 2 rows that are neighbours both ways, 3 columns with open ends.
TEST(Pattern, KnowsWhatNeighboursGiveAndWhereThereIsNone) {
  Case c{{.collective = Collective::neighbor_exchange, .count = 400, .algorithm = "neighbor_exchange:2x3,periods=1x0"},
         6};
  const auto output_of_rank_3 = [&] {
    Buffer output(400 * sizeof(float), untouched);
    for (const auto& [direction, from] : {std::pair{0, 0}, {1, 0}, {3, 4}}) {
      const Buffer part = part_of(input_of(c, from), direction ^ 1, 4);
      std::ranges::copy(part, output.begin() + direction * static_cast<std::ptrdiff_t>(part.size()));
    }
    return output;
  };
  Buffer output = output_of_rank_3();
  EXPECT_EQ(count_wrong_output(c.job, 3, c.world, output.data()), 0);
  output[2 * 100 * sizeof(float) + 5] ^= std::byte{1};  // beyond the open border on the left
  EXPECT_EQ(count_wrong_output(c.job, 3, c.world, output.data()), 1);
  output = output_of_rank_3();
  std::swap_ranges(output.begin(), output.begin() + 400, output.begin() + 400);  // both are of rank 0
  EXPECT_GT(count_wrong_output(c.job, 3, c.world, output.data()), 150);
}

TEST(Pattern, AllowsAnAverageOneUnitInTheLastPlaceButNotTwo) {
  const Job job{.op = ReduceOp::average, .count = 3, .fill = Fill::ones};
  for (const auto& [value, wrong] : {std::pair{1.0F, 0}, std::pair{1 + 0x1p-23F, 0}, std::pair{1 + 0x1p-22F, 3},
                                     std::pair{std::numeric_limits<float>::quiet_NaN(), 3}}) {
    const std::vector<float> output(3, value);
    EXPECT_EQ(count_wrong_output(job, 0, 3, output.data()), wrong) << value;
  }
}

// Samples repeat an operation in place; the check at their end relies on a fill that repetition does not change.
TEST(Pattern, SteadyFillSurvivesRepetitionInPlace) {
  for (auto c : all_cases()) {
    if (c.job.collective != Collective::all_reduce) continue;
    c.job.in_place = true;
    c.job.fill = steady_fill(c.job);
    const Buffer once = reduction(c, false);
    ASSERT_EQ(count_wrong_output(c.job, 0, c.world, once.data()), 0) << c;
    Buffer again = once;
    for (Rank rank = 1; rank < c.world; ++rank)
      kernel::reduce(c.job.op, c.job.dtype, again.data(), again.data(), once.data(), c.job.count,
                     rank + 1 == c.world ? c.world : 0);
    ASSERT_EQ(count_wrong_output(c.job, 0, c.world, again.data()), 0) << c;
  }
}

TEST(Pattern, FillsMoreThanOnePeriodAsItIsChecked) {
  const Job job{.collective = Collective::broadcast, .count = 3 * Pattern::period + 5, .in_place = true};
  std::vector<float> memory(job.count);
  fill_input(job, 0, 2, memory.data());
  EXPECT_EQ(memory[7], memory[7 + 2 * Pattern::period]);
  EXPECT_EQ(count_wrong_output(job, 1, 2, memory.data()), 0);
  memory[2 * Pattern::period] += 1;
  EXPECT_EQ(count_wrong_output(job, 1, 2, memory.data()), 1);
}

}  // namespace
}  // namespace ranvier::bench
