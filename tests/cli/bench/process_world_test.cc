// How long a coordinator waits for the ranks that it has started. The ranks are this program once more, and what they
// and the tests know of each other are files in a folder: a test never hopes that somebody is fast enough.
#include "bench/process_world.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "ranvier/error.h"
#include "support/refusal.h"
#include "support/temporary_folder.h"

namespace ranvier::bench {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr const char* folder_variable = "RANVIER_TEST_FOLDER";
constexpr auto long_enough = 30s;

bool appears(const fs::path& file, std::chrono::seconds limit = long_enough) {
  const auto until = steady_clock::now() + limit;
  while (!fs::exists(file)) {
    if (steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

void make(const fs::path& file) { std::ofstream(file) << "yes"; }

// Two ranks that do what the test of that name says.
class WorldOfProcesses : public testing::Test {
 protected:
  WorldOfProcesses() {
    const cli::Launch launch{.count = 2,
                             .command = {cli::this_program(), "--gtest_also_run_disabled_tests",
                                         fmt::format("--gtest_filter=Ranks.DISABLED_{}",
                                                     testing::UnitTest::GetInstance()->current_test_info()->name())},
                             .environment = {{folder_variable, folder_.path().string()}},
                             .grace = 0ms};
    world_.emplace("library", 2, launch, 1s);
  }

  fs::path file(const std::string& name) const { return folder_.path() / name; }
  std::string problem(ErrorKind kind, std::chrono::milliseconds limit, bool ranks_tell, const Patience& patience) {
    std::string said = support::refusal([&] { world_->meet(limit, ranks_tell, patience); }, kind);
    make(file("over"));
    return said;
  }

  support::TemporaryFolder folder_;
  std::optional<ProcessWorld> world_;
};

Lines coordinator() { return connect_lines(std::getenv(socket_variable)); }
Rank own_rank() { return std::stoi(std::getenv("RANVIER_RANK")); }
std::string hello() { return fmt::format("hello {} 2 library", own_rank()); }
fs::path shared(const std::string& name) { return fs::path(std::getenv(folder_variable)) / name; }
fs::path shared(Rank rank) { return shared(fmt::format("rank {}", rank)); }

// Unless the coordinator gives up before, as it should.
void complain_later() {
  if (!appears(shared("over"), 15s)) coordinator().write(failure_line(Error(ErrorKind::timeout, "too late")));
}

TEST_F(WorldOfProcesses, WhoseRanksHaveWaitedInVainIsToldWhy) {
  EXPECT_EQ(problem(ErrorKind::unreachable, 0ms, true, {.to_explain = long_enough}), "nobody is there");
}
TEST(Ranks, DISABLED_WhoseRanksHaveWaitedInVainIsToldWhy) {
  if (own_rank() == 0) coordinator().write(failure_line(Error(ErrorKind::unreachable, "nobody is there")));
}

// The kind is what the exit code of the coordinator tells.
TEST_F(WorldOfProcesses, IsToldWhatARankFailedWithAndWhatItHadDone) {
  ASSERT_NO_THROW(world_->meet(0ms, true, {.to_explain = long_enough, .to_follow = long_enough}));
  try {
    world_->run({});
    FAIL() << "nobody measured anything";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_STREQ(error.what(), "library rank 0 failed: a call that makes no sense");
    EXPECT_EQ(error.flight_record(), "#1 all_reduce\n#2 barrier\n");
  }
}
TEST(Ranks, DISABLED_IsToldWhatARankFailedWithAndWhatItHadDone) {
  Lines lines = coordinator();
  lines.write(hello());
  lines.read();
  lines.write(failure_line(
      Error(ErrorKind::usage, "a call that makes no sense").with_flight_record("#1 all_reduce\n#2 barrier\n")));
}

TEST_F(WorldOfProcesses, WhoseRanksTellNothingIsNotWaitedForLonger) {
  EXPECT_THAT(problem(ErrorKind::timeout, 0ms, false, {.to_explain = long_enough}), testing::HasSubstr("0, 1;"));
}
TEST(Ranks, DISABLED_WhoseRanksTellNothingIsNotWaitedForLonger) { complain_later(); }

// The other one is late, or hangs.
TEST_F(WorldOfProcesses, OfWhichARankHasComeHasMet) {
  EXPECT_THAT(problem(ErrorKind::timeout, 0ms, true, {.to_explain = long_enough, .to_follow = 50ms}),
              testing::HasSubstr("within 0 s: 1;"));
}
TEST(Ranks, DISABLED_OfWhichARankHasComeHasMet) {
  if (own_rank() == 1) return complain_later();
  Lines lines = coordinator();
  lines.write(hello());
  lines.read();  // until the coordinator leaves
}

TEST_F(WorldOfProcesses, IsCompleteIfItsRanksHaveComeWhileTheCoordinatorDidSomethingElse) {
  ASSERT_TRUE(appears(file("rank 0")) && appears(file("rank 1")));
  EXPECT_NO_THROW(world_->meet(0ms, false));
}
TEST(Ranks, DISABLED_IsCompleteIfItsRanksHaveComeWhileTheCoordinatorDidSomethingElse) {
  Lines lines = coordinator();
  lines.write(hello());
  make(shared(own_rank()));
  lines.read();
}

TEST_F(WorldOfProcesses, IsCompleteIfARankFollowsTheOther) {
  EXPECT_NO_THROW(world_->meet(0ms, true, {.to_explain = long_enough, .to_follow = long_enough}));
}
TEST(Ranks, DISABLED_IsCompleteIfARankFollowsTheOther) {
  if (own_rank() == 1) {
    ASSERT_TRUE(appears(shared(0)));
    std::this_thread::sleep_for(300ms);  // the other one has been greeted
  }
  Lines lines = coordinator();
  lines.write(hello());
  make(shared(own_rank()));
  lines.read();
}

TEST_F(WorldOfProcesses, MissesARankThatSaysNothing) {
  ASSERT_TRUE(appears(file("rank 0")));
  EXPECT_THAT(problem(ErrorKind::timeout, 0ms, false, {.to_follow = 50ms}), testing::HasSubstr("within 0 s: 1;"));
}
TEST(Ranks, DISABLED_MissesARankThatSaysNothing) {
  if (own_rank() == 0) {
    ASSERT_TRUE(appears(shared(1)));
  }
  Lines lines = coordinator();
  if (own_rank() == 0) lines.write(hello());
  make(shared(own_rank()));
  lines.read();
}

// Ranks that come when the coordinator has given up would otherwise be killed after 10 s, and the user hear of that
// too.
TEST_F(WorldOfProcesses, WhoseRanksWereNeverAcceptedIsToldToLeave) {
  ASSERT_TRUE(appears(file("rank 0")) && appears(file("rank 1")));
  world_.reset();
  for (const std::string rank : {"0", "1"}) EXPECT_TRUE(fs::exists(file("rank " + rank + " has left"))) << rank;
}
TEST(Ranks, DISABLED_WhoseRanksWereNeverAcceptedIsToldToLeave) {
  Lines lines = coordinator();
  make(shared(own_rank()));
  lines.read();
  lines.write(failure_line(Error(ErrorKind::unreachable, "nobody is there")));  // heard by nobody, and no mistake
  make(shared(fmt::format("rank {} has left", own_rank())));
}

}  // namespace
}  // namespace ranvier::bench
