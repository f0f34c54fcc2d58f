// How long a coordinator waits for the ranks that it has started. The ranks are this program once more.
#include "bench/process_world.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "ranvier/error.h"
#include "support/temporary_folder.h"

namespace ranvier::bench {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr const char* folder_variable = "RANVIER_TEST_FOLDER";

// Two ranks that do what the test of that name says.
class World : public testing::Test {
 protected:
  World()
      : world_("library", 2,
               {.count = 2,
                .command = {cli::this_program(), "--gtest_also_run_disabled_tests",
                            fmt::format("--gtest_filter=Ranks.DISABLED_{}",
                                        testing::UnitTest::GetInstance()->current_test_info()->name())},
                .environment = {{folder_variable, folder_.path().string()}},
                .grace = 0ms},
               1s) {}

  ErrorKind fails(std::chrono::milliseconds limit, bool ranks_tell) {
    try {
      world_.meet(limit, ranks_tell);
    } catch (const Error& error) {
      return error.kind();
    }
    ADD_FAILURE() << "all have come";
    return ErrorKind::internal;
  }

  support::TemporaryFolder folder_;
  ProcessWorld world_;
};

Lines coordinator() { return connect_lines(std::getenv(socket_variable)); }
// Unless it has left already.
void tell(const std::string& why) {
  try {
    coordinator().write(failure_line(why));
  } catch (const Error&) {
  }
}
Rank own_rank() { return std::stoi(std::getenv("RANVIER_RANK")); }

TEST_F(World, WhoseRanksHaveWaitedInVainIsToldWhy) { EXPECT_EQ(fails(0ms, true), ErrorKind::config); }
TEST(Ranks, DISABLED_WhoseRanksHaveWaitedInVainIsToldWhy) { tell("nobody is there"); }

TEST_F(World, WhoseRanksTellNothingIsNotWaitedForLonger) { EXPECT_EQ(fails(0ms, false), ErrorKind::timeout); }
TEST(Ranks, DISABLED_WhoseRanksTellNothingIsNotWaitedForLonger) { tell("too late"); }

// The other one is late, or hangs.
TEST_F(World, OfWhichARankHasComeHasMet) { EXPECT_EQ(fails(100ms, true), ErrorKind::timeout); }
TEST(Ranks, DISABLED_OfWhichARankHasComeHasMet) {
  const fs::path has_come = fs::path(std::getenv(folder_variable)) / "come";
  if (own_rank() == 0) {
    Lines lines = coordinator();
    lines.write("hello 0 2 library");
    std::ofstream(has_come) << "yes";
    lines.read();  // until the coordinator leaves
  } else {
    while (!fs::exists(has_come)) std::this_thread::sleep_for(5ms);
    std::this_thread::sleep_for(500ms);
    tell("too late");
  }
}

}  // namespace
}  // namespace ranvier::bench
