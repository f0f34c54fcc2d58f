// Where UCX listens.
#include <gmock/gmock.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "ranvier/transport.h"

namespace ranvier {
namespace {

// The TCP ports on which this process listens.
std::vector<int> listening() {
  std::set<std::string> own;
  std::error_code gone;
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd"))
    own.insert(std::filesystem::read_symlink(file.path(), gone).string());
  std::vector<int> ports;
  for (const char* const table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream rows(table);
    std::string row;
    std::getline(rows, row);
    while (std::getline(rows, row)) {
      std::istringstream words(row);
      std::string number, local, remote, state, queues, timer, again, user, timeout, inode;
      words >> number >> local >> remote >> state >> queues >> timer >> again >> user >> timeout >> inode;
      if (state == "0A" && own.contains("socket:[" + inode + "]"))
        ports.push_back(std::stoi(local.substr(local.find(':') + 1), nullptr, 16));
    }
  }
  return ports;
}

TEST(Ucx, ListensOnPortsOfTheRange) {
  if (const std::string why = missing_transport("ucx"); !why.empty()) GTEST_SKIP() << why;
  if (std::getenv("UCX_TCP_PORT_RANGE") != nullptr || std::getenv("UCX_TLS") != nullptr)
    GTEST_SKIP() << "the environment says where UCX listens";
  ASSERT_TRUE(listening().empty());
  const auto endpoint = ucx_endpoint({.rank = 0, .world = 2}, {.ports = {.first = 21300, .last = 21399}});
  const auto ports = listening();
  EXPECT_FALSE(ports.empty());
  EXPECT_THAT(ports, testing::Each(testing::AllOf(testing::Ge(21300), testing::Le(21399))));
  EXPECT_EQ(std::getenv("UCX_TCP_PORT_RANGE"), nullptr);  // what others of this process ask of UCX is their own
}

TEST(Ucx, LeavesSignalsToTheProgram) {
  if (const std::string why = missing_transport("ucx"); !why.empty()) GTEST_SKIP() << why;
  const auto endpoint = ucx_endpoint({.rank = 0, .world = 2}, {});
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM}) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    EXPECT_EQ(now.sa_handler, SIG_DFL) << signal;
  }
}

}  // namespace
}  // namespace ranvier
