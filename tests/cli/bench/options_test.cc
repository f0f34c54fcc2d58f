#include "bench/options.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>

#include "ranvier/error.h"

namespace ranvier::bench {
namespace {

std::vector<std::size_t> sizes_of(const cli::Arguments& arguments) { return sizes(*parse_options(arguments)); }

TEST(Options, SizesGoFromTheSmallestByTheFactorToTheLargest) {
  EXPECT_EQ(sizes_of({"-b", "4", "-e", "64", "-f", "2"}), (std::vector<std::size_t>{4, 8, 16, 32, 64}));
  EXPECT_EQ(sizes_of({"-b", "1K", "-e", "5K", "-f", "4"}), (std::vector<std::size_t>{1024, 4096}));
  EXPECT_EQ(sizes_of({"-b", "8", "-e", "8"}), (std::vector<std::size_t>{8}));
  EXPECT_EQ(sizes_of({"-b", "1", "-e", "4", "-f", "1.01"}), (std::vector<std::size_t>{1, 2, 3, 4}));
  EXPECT_EQ(sizes_of({"--collective", "barrier"}), (std::vector<std::size_t>{0}));
}

TEST(Options, RunInPlaceWhatIsMostlyCalledSo) {
  EXPECT_TRUE(parse_options({})->in_place);
  EXPECT_TRUE(parse_options({"--collective", "broadcast"})->in_place);
  EXPECT_FALSE(parse_options({"--collective", "all_gather"})->in_place);
  EXPECT_TRUE(parse_options({"--collective", "all_gather", "--in-place"})->in_place);
  EXPECT_FALSE(parse_options({"--out-of-place"})->in_place);
}

TEST(Options, NameEachBaselineOnceAndAllOnlyWhereTheyAre) {
  const auto named = parse_options({"--ranks", "2", "--baseline", "gloo,mpi,gloo"});
  EXPECT_EQ(named->baselines, (std::vector<std::string>{"gloo", "mpi"}));
  EXPECT_FALSE(named->every_baseline);
  EXPECT_TRUE(parse_options({"--ranks", "2", "--baseline", "all"})->every_baseline);
}

TEST(Options, TakeHowOftenToRunAndToCheck) {
  const auto none = parse_options({})->sampling;
  EXPECT_EQ(none.iterations, std::nullopt);
  EXPECT_EQ(none.warmups, std::nullopt);
  EXPECT_EQ(none.checks, 1U);
  for (const std::array<const char*, 3> names : {std::array{"-n", "-w", "-c"}, {"--iters", "--warmup", "--check"}}) {
    const auto sampling = parse_options({names[0], "20", names[1], "5", names[2], "3"})->sampling;
    EXPECT_EQ(sampling.iterations, 20U);
    EXPECT_EQ(sampling.warmups, 5U);
    EXPECT_EQ(sampling.checks, 3U);
  }
  const auto least = parse_options({"-n", "1", "-w", "0", "-c", "0"})->sampling;
  EXPECT_EQ(least.iterations, 1U);
  EXPECT_EQ(least.warmups, 0U);
  EXPECT_EQ(least.checks, 0U);
  for (const cli::Arguments& wrong : {cli::Arguments{"-n", "0"}, {"-w", "-1"}, {"-c", "1001"}, {"-c", "often"}})
    EXPECT_THROW(parse_options(wrong), Error) << wrong[0] << ' ' << wrong[1];
}

TEST(Options, TakeARootThatIsInTheWorld) {
  const auto root_of = [](const cli::Arguments& words) {
    cli::Arguments all{"--collective", "scatter"};
    all.insert(all.end(), words.begin(), words.end());
    return parse_options(all)->root;
  };
  EXPECT_EQ(root_of({}), 0);
  EXPECT_EQ(root_of({"--ranks", "4", "--root", "3"}), 3);
  EXPECT_THROW(root_of({"--ranks", "4", "-r", "4"}), Error);
  EXPECT_THROW(root_of({"-r", "-1"}), Error);
  EXPECT_THROW(parse_options({"--collective", "all_gather", "-r", "1"}), Error) << "it has none";
  const auto of_a_world_that_stands = parse_options({"--collective", "reduce", "-r", "2"});
  EXPECT_EQ(job_of(*of_a_world_that_stands, 64, 3).root, 2);
  EXPECT_THROW(job_of(*of_a_world_that_stands, 64, 2), Error);
}

TEST(Options, TakeTheNamesOfOtherLibraries) {
  const auto options = parse_options({"--dtype", "bfloat16", "--op", "avg"});
  EXPECT_EQ(options->dtype, DType::bf16);
  EXPECT_EQ(options->op, ReduceOp::average);
}

TEST(Options, TakeAGridForNeighboursAndRefuseWhatHasNone) {
  const auto neighbors = [](std::initializer_list<const char*> more) {
    cli::Arguments words{"--collective", "neighbor_exchange", "--ranks", "4"};
    words.insert(words.end(), more.begin(), more.end());
    return parse_options(words);
  };
  EXPECT_NO_THROW(neighbors({"--algorithm", "neighbor_exchange:2x2,periods=1x0"}));
  EXPECT_NO_THROW(neighbors({"--explain"}));
  EXPECT_THROW(neighbors({"--algorithm", "neighbor_exchange:2x3"}), Error);
  EXPECT_THROW(neighbors({"--algorithm", "ring"}), Error);
  EXPECT_THROW(neighbors({"--baseline", "mpi"}), Error);
  EXPECT_THROW(neighbors({"--in-place"}), Error);
  EXPECT_THROW(neighbors({"--tune", "t"}), Error);
}

TEST(Options, TakeRatesInBitsPerSecond) {
  EXPECT_DOUBLE_EQ(parse_options({"--link-rate", "200Mbit"})->link_bytes_per_second, 25e6);
}

}  // namespace
}  // namespace ranvier::bench
