// Transports side by side, on worlds whose times and losses are made up.
#include "bench/compare.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/made_up_world.h"

namespace ranvier::bench {
namespace {

struct Printed {
  int code = 0;
  std::string out;
  nlohmann::json json;
};

class Compare : public testing::Test {
 protected:
  MadeUpWorld& add(const std::string& transport, double seconds) {
    auto world = std::make_unique<MadeUpWorld>(machine_, transport, seconds);
    MadeUpWorld& added = *world;
    all_.push_back({.transport = transport, .world = std::move(world)});
    return added;
  }

  Printed compare() {
    const auto options = parse_options(
        {"--compare-transports", "-b", "64K", "-e", "1M", "--samples", "3", "--latency-samples", "10", "--check", "2"});
    const auto path = std::filesystem::path(testing::TempDir()) / "compare_test.json";
    testing::internal::CaptureStdout();
    Printed printed;
    printed.code = compare_transports(*options, 2, "that are made up", all_, cli::JsonFile(path));
    printed.out = testing::internal::GetCapturedStdout();
    printed.json = nlohmann::json::parse(std::ifstream(path));
    std::filesystem::remove(path);
    return printed;
  }

  Machine machine_;
  std::vector<Compared> all_;
};

TEST_F(Compare, HasARowForEachTransportAndAReasonForThoseThatAreAbsent) {
  add("tcp", 1e-3).always.packets = {.sent = 1000, .lost = 10, .refused = 1};
  add("shm", 1e-4);
  all_.push_back({.transport = "mpi", .absent = "start them with mpirun"});
  const auto printed = compare();
  EXPECT_EQ(printed.code, 0);
  EXPECT_NE(printed.out.find("# mpi: start them with mpirun\n"), std::string::npos);
  EXPECT_EQ(printed.json["absent"]["mpi"], "start them with mpirun");
  ASSERT_EQ(printed.json["rows"].size(), 2);
  const auto& tcp = printed.json["rows"][0];
  EXPECT_NEAR(tcp["algbw_gbps"].get<double>(), 1.048576, 1e-9);
  EXPECT_NEAR(tcp["latency_us"].get<double>(), 1000, 1e-6);
  EXPECT_NEAR(tcp["packets_lost_share"].get<double>(), 0.01, 1e-12);
  EXPECT_EQ(tcp["packets_refused"], tcp["packets_sent"].get<std::uint64_t>() / 1000);
  EXPECT_EQ(tcp["lost_share"], 0);
  EXPECT_EQ(tcp["relative_error"], 0);
  EXPECT_TRUE(printed.json["rows"][1]["packets_lost_share"].is_null()) << "shared memory has no packets";
}

TEST_F(Compare, CountsNoPacketsOfLibrariesThatSendNoneWithinAHost) {
  for (const std::string transport : {"mpi", "ucx", "grpc"}) {
    auto& always = add(transport, 1e-3).always;
    always.packets = {.sent = 1000, .lost = 10, .refused = 1};
    always.networks = {1};
  }
  auto printed = compare();
  EXPECT_TRUE(printed.json["rows"][0]["packets_sent"].is_null());
  EXPECT_TRUE(printed.json["rows"][1]["packets_sent"].is_null());
  EXPECT_GT(printed.json["rows"][2]["packets_sent"], 0);
  all_.clear();
  auto& between = add("mpi", 1e-3).always;
  between.packets = {.sent = 1000};
  between.networks = {1, 2};
  printed = compare();
  EXPECT_GT(printed.json["rows"][0]["packets_sent"], 0);
}

TEST_F(Compare, CountsTheOperationsThatAreLate) {
  machine_.speed = [](std::size_t job) { return job == 4 || job == 7 ? 2.5 : job == 5 ? 1.9 : 1.0; };
  add("tcp", 1e-3);
  const auto printed = compare();
  EXPECT_NEAR(printed.json["rows"][0]["late_share"].get<double>(), 0.2, 1e-12);
  EXPECT_NEAR(printed.json["rows"][0]["latency_p99_us"].get<double>(), 2500, 1e-6);
}

TEST_F(Compare, OfWhatMayLackValuesTheErrorIsMeasuredAndOfAllElseEveryElementIsCompared) {
  MadeUpWorld& exact = add("udp", 1e-3);
  MadeUpWorld& bounded = add("udp:loss=0.01", 1e-3);
  bounded.always.error = 0.05;
  bounded.always.losses = {.due = 100, .missing = 3};
  const auto printed = compare();
  EXPECT_NEAR(printed.json["rows"][1]["relative_error"].get<double>(), 0.05, 1e-12);
  EXPECT_NEAR(printed.json["rows"][1]["lost_share"].get<double>(), 0.03, 1e-12);
  const auto fills = [](const MadeUpWorld& world, std::size_t last) {
    std::vector<Fill> found;
    for (std::size_t i = world.jobs.size() - last; i < world.jobs.size(); ++i) found.push_back(world.jobs[i].fill);
    return found;
  };
  EXPECT_EQ(fills(exact, 3), (std::vector{Fill::zeros, Fill::varied, Fill::varied}));
  EXPECT_EQ(fills(bounded, 5), (std::vector{Fill::zeros, Fill::centred, Fill::alike, Fill::centred, Fill::alike}));
  EXPECT_NE(exact.jobs.back().seed, exact.jobs[exact.jobs.size() - 2].seed);
}

TEST_F(Compare, FailsWhereAnElementIsWrong) {
  add("tcp", 1e-3).always.wrong = 1;
  testing::internal::CaptureStderr();
  const auto printed = compare();
  EXPECT_NE(testing::internal::GetCapturedStderr().find("elements are wrong"), std::string::npos);
  EXPECT_EQ(printed.code, 1);
}

TEST_F(Compare, TakesAllTransportsAndTheOneThatMayLose) {
  const auto all = compared_transports();
  EXPECT_EQ(all.size(), transport_names.size() + 1);
  for (const auto name : transport_names) EXPECT_EQ(std::count(all.begin(), all.end(), name), 1) << name;
  EXPECT_EQ(std::count(all.begin(), all.end(), "udp:loss=0.01"), 1);
}

}  // namespace
}  // namespace ranvier::bench
