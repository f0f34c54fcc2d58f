#include "bench/table.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/made_up_world.h"

namespace ranvier::bench {
namespace {

struct PrintedTable {
  int code;
  std::string out;
  std::string err;
  nlohmann::json json;
};

// Ours takes 1 ms, the baseline 2 ms.
PrintedTable measure_made_up(std::uint64_t our_wrong, std::uint64_t their_wrong) {
  Machine machine;
  MadeUpWorld ours(machine, "ranvier", 1e-3), other(machine, "mpi", 2e-3);
  ours.always.wrong = our_wrong;
  other.always.wrong = their_wrong;
  const auto options = parse_options({"-b", "1M", "-e", "1M", "--samples", "3", "--iters", "1", "-w", "0"});
  const auto path = std::filesystem::path(testing::TempDir()) / "table_test.json";
  const cli::JsonFile file(path);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  PrintedTable printed{measure_all(*options, ours, {&other}, {"gloo: not here"}, file), {}, {}, {}};
  printed.out = testing::internal::GetCapturedStdout();
  printed.err = testing::internal::GetCapturedStderr();
  printed.json = nlohmann::json::parse(std::ifstream(path));
  std::filesystem::remove(path);
  return printed;
}

TEST(Table, ShowsTimeBandwidthAndRatio) {
  const auto printed = measure_made_up(0, 0);
  EXPECT_EQ(printed.code, 0);
  EXPECT_EQ(printed.err, "");
  EXPECT_NE(
      printed.out.find("    1048576       262144      f32      sum      1000     1.05     1.05       0      2000    "
                       "2.00\n"),
      std::string::npos)
      << printed.out;
  EXPECT_NE(printed.out.find("# not beside it: gloo: not here\n"), std::string::npos);
  const auto& row = printed.json["rows"][0];
  EXPECT_NEAR(row["time_us"].get<double>(), 1000, 1e-6);
  EXPECT_NEAR(row["busbw_gbps"].get<double>(), 1.048576, 1e-6);
  EXPECT_NEAR(row["baseline"]["mpi"]["ratio"].get<double>(), 2, 1e-9);
}

TEST(Table, FailsWhenAnElementIsWrong) {
  const auto printed = measure_made_up(5, 0);
  EXPECT_EQ(printed.code, 1);
  EXPECT_NE(printed.out.find("      20 "), std::string::npos) << printed.out;  // the check and three samples
  EXPECT_NE(printed.err.find("20 elements are wrong"), std::string::npos) << printed.err;
  EXPECT_EQ(printed.json["rows"][0]["wrong"], 20);
}

TEST(Table, NamesABaselineThatIsWrongAndGoesOn) {
  const auto printed = measure_made_up(0, 1);
  EXPECT_EQ(printed.code, 0);
  EXPECT_NE(printed.err.find("mpi at 1048576 bytes"), std::string::npos) << printed.err;
}

}  // namespace
}  // namespace ranvier::bench
