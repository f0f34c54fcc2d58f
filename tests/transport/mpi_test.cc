// Ranks that mpirun has started: this program calls itself through it.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/whole_file.h"
#include "ranvier/error.h"
#include "ranvier/store.h"
#include "ranvier/transport.h"
#include "support/refusal.h"
#include "support/temporary_folder.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;

constexpr Rank world = 3, absent = 1;
constexpr const char* meeting_place = "RANVIER_TEST_MEETING";

std::vector<std::string> exchange(Store& store, const std::string& name, Rank rank, const std::string& own) {
  store.set(fmt::format("{}.{}", name, rank), own);
  std::vector<std::string> all;
  for (Rank peer = 0; peer < world; ++peer) all.push_back(store.get(fmt::format("{}.{}", name, peer), 60s));
  return all;
}

// Of the second group of all: what MPI makes for the first one has a deadline of its own.
TEST(Mpi, DISABLED_OneOfThree) {
  const auto store = file_store(std::getenv(meeting_place));
  const Rank rank = std::atoi(std::getenv("OMPI_COMM_WORLD_RANK"));
  const WorldInfo info{.rank = rank, .world = world};
  const auto first = mpi_endpoint(info), second = mpi_endpoint(info);
  const auto met =
      first->connect(exchange(*store, "first", rank, first->address()), std::chrono::steady_clock::now() + 60s);
  const auto addresses = exchange(*store, "second", rank, second->address());
  if (rank != absent) {
    EXPECT_THAT(support::refusal([&] { second->connect(addresses, std::chrono::steady_clock::now() + 500ms); },
                                 ErrorKind::timeout),
                testing::HasSubstr("to come to transport mpi"));
  }
  exchange(*store, "end", rank, "");
}

// As a program that fails does. Other threads still have a while when MPI has been ended.
TEST(Mpi, DISABLED_LeavesWithMessagesUnderWay) {
  std::atexit([] { std::this_thread::sleep_for(100ms); });
  const auto store = file_store(std::getenv(meeting_place));
  const Rank rank = std::atoi(std::getenv("OMPI_COMM_WORLD_RANK"));
  static auto* const endpoint = mpi_endpoint({.rank = rank, .world = world}).release();  // never destroyed
  static auto* const transport =
      endpoint->connect(exchange(*store, "all", rank, endpoint->address()), std::chrono::steady_clock::now() + 60s)
          .release();
  const std::vector<std::byte> message(64 << 10);
  const Rank next = (rank + 1) % world;
  while (transport->try_send(next, 0, {}, message) > 0) {
  }
  exchange(*store, "end", rank, "");
}

// Runs that test in so many ranks.
void run_ranks(const std::string& test) {
  const support::TemporaryFolder folder;
  setenv(meeting_place, folder.path().c_str(), 1);
  for (const char* const variable : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"})
    setenv(variable, "1", 1);
  const std::string command = fmt::format(
      "timeout 60 mpirun --oversubscribe --bind-to none -n {} '{}' --gtest_also_run_disabled_tests "
      "--gtest_filter=Mpi.DISABLED_{} >'{}' 2>&1",
      world, std::filesystem::read_symlink("/proc/self/exe").string(), test, (folder.path() / "said.txt").string());
  EXPECT_EQ(std::system(command.c_str()), 0) << command << read_whole(folder.path() / "said.txt").text;
}

TEST(Mpi, WhoDoesNotComeToAGroupIsWaitedForUntilTheDeadline) {
  if (const std::string why = missing_transport("mpi"); !why.empty()) GTEST_SKIP() << why;
  run_ranks("OneOfThree");
}

TEST(Mpi, IsNotCalledOnceItHasBeenEnded) {
  if (const std::string why = missing_transport("mpi"); !why.empty()) GTEST_SKIP() << why;
  for (int round = 0; round < 3; ++round) run_ranks("LeavesWithMessagesUnderWay");
}

}  // namespace
}  // namespace ranvier
