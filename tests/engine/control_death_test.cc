// Ranks that are processes, and die or stop as processes do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/socket.h"
#include "engine/control_diary.h"

namespace ranvier::engine {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class ControlDeath : public testing::TestWithParam<bool> {};  // each connection is a call of gRPC
INSTANTIATE_TEST_SUITE_P(Connections, ControlDeath, testing::Bool(),
                         [](const auto& tested) { return tested.param ? "calls" : "streams"; });

// A child process that is one rank. It writes its address, a line, connects by those of all that it is then given, and
// writes a line when it has, and another of the fault it hears of.
class RankProcess {
 public:
  RankProcess(const WorldInfo& info, const ControlOptions& options) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) throw std::runtime_error("no pair of sockets");
    process_ = fork();
    ends_ = Fd(ends[process_ == 0 ? 1 : 0]);
    close(ends[process_ == 0 ? 0 : 1]);
    if (process_ != 0) return;
    alarm(60);
    run(info, options);
    _exit(0);
  }
  RankProcess(RankProcess&& other) noexcept
      : process_(std::exchange(other.process_, -1)), ends_(std::move(other.ends_)) {}
  ~RankProcess() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }

  void signal(int number) const { kill(process_, number); }

  // The next line that it writes; empty at its end or after a while.
  std::string line() {
    std::string text;
    const auto deadline = Clock::now() + Diary::patience;
    for (char c = 0; c != '\n'; text += c) {
      pollfd ready{ends_.get(), POLLIN, 0};
      const auto limit = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      if (poll(&ready, 1, static_cast<int>(std::max(limit, 0ms).count())) != 1) break;
      if (read(ends_.get(), &c, 1) != 1) break;
    }
    return text;
  }
  void write_line(const std::string& text) const {
    if (write(ends_.get(), text.data(), text.size()) != std::ssize(text)) _exit(1);
  }

 private:
  void run(const WorldInfo& info, const ControlOptions& options) {
    const auto endpoint = control_endpoint(info, options);
    write_line(endpoint->address() + "\n");
    std::vector<std::string> addresses;
    for (Rank rank = 0; rank < info.world; ++rank) {
      addresses.push_back(line());
      addresses.back().pop_back();
    }
    Diary diary;
    const auto plane = endpoint->connect(addresses, Clock::now() + Diary::patience, diary.events());
    write_line("connected\n");
    const auto fault = diary.wait_for_fault();
    write_line(fault ? std::to_string(fault->culprit()) + " " + fault->what() + "\n" : "no fault\n");
  }

  pid_t process_ = -1;
  Fd ends_;
};

std::vector<RankProcess> running_world(Rank world, ControlOptions options = {}) {
  options.calls = ControlDeath::GetParam();
  std::vector<RankProcess> processes;
  for (Rank rank = 0; rank < world; ++rank) processes.emplace_back(WorldInfo{.rank = rank, .world = world}, options);
  std::string addresses;
  for (RankProcess& process : processes) addresses += process.line();
  for (const RankProcess& process : processes) process.write_line(addresses);
  for (RankProcess& process : processes) EXPECT_EQ(process.line(), "connected\n");
  return processes;
}

TEST_P(ControlDeath, AKilledRankIsNamedByEverySurvivor) {
  for (const Rank count : {2, 4, 9}) {
    auto world = running_world(count);
    const auto victim = static_cast<std::size_t>(count / 2);
    world[victim].signal(SIGKILL);
    const std::string verdict = std::to_string(victim) + " rank " + std::to_string(victim) +
                                " died: its control connection closed; see its output for why\n";
    for (std::size_t rank = 0; rank < world.size(); ++rank) {
      if (rank != victim) {
        EXPECT_EQ(world[rank].line(), verdict) << "rank " << rank;
      }
    }
  }
}

TEST_P(ControlDeath, WhenTwoDieAtOnceEverySurvivorNamesOneOfThem) {
  for (const Rank count : {4, 8, 16}) {
    auto world = running_world(count);
    world[1].signal(SIGKILL);
    world[2].signal(SIGKILL);
    for (std::size_t rank = 0; rank < world.size(); ++rank) {
      if (rank == 1 || rank == 2) continue;
      EXPECT_THAT(world[rank].line(),
                  testing::AnyOf(testing::StartsWith("1 rank 1 died"), testing::StartsWith("2 rank 2 died")));
    }
  }
}

TEST_P(ControlDeath, AStoppedRankIsGivenUpAndLearnsOfItWhenItGoesOn) {
  auto world = running_world(4, {.suspect_after = 500ms, .dead_after = 1500ms});
  world[2].signal(SIGSTOP);
  const auto is_verdict = testing::ContainsRegex("^2 rank [013] has heard nothing from rank 2 for 1.5 s; see whether");
  for (const std::size_t rank : {0U, 1U, 3U}) EXPECT_THAT(world[rank].line(), is_verdict) << "rank " << rank;
  world[2].signal(SIGCONT);
  EXPECT_THAT(world[2].line(), is_verdict);
}

TEST_P(ControlDeath, AJobThatIsStoppedAsAWholeGoesOnAsAWhole) {
  auto world = running_world(3, {.suspect_after = 500ms, .dead_after = 1500ms});
  for (const RankProcess& process : world) process.signal(SIGSTOP);
  std::this_thread::sleep_for(2s);
  for (const RankProcess& process : world) process.signal(SIGCONT);
  std::this_thread::sleep_for(300ms);
  world[0].signal(SIGKILL);
  for (const std::size_t rank : {1U, 2U}) EXPECT_THAT(world[rank].line(), testing::StartsWith("0 rank 0 died"));
}

}  // namespace
}  // namespace ranvier::engine
