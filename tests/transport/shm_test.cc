// Rings between real processes: meeting, exchanging, sleeping, dying.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ranvier/error.h"
#include "ranvier/transport.h"
#include "support/sanitized.h"
#include "transport/inbox.h"
#include "transport/shm_address.h"
#include "transport/streams.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using ::testing::HasSubstr;

// Where forked processes leave their addresses for one another.
class Board {
 public:
  Board() : memory_(mmap(nullptr, sizeof(Posts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    posts_ = new (memory_) Posts;
  }
  Board(const Board&) = delete;
  ~Board() { munmap(memory_, sizeof(Posts)); }

  std::vector<std::string> exchange(const WorldInfo& info, const std::string& address) {
    address.copy(posts_->text[static_cast<std::size_t>(info.rank)].data(), posts_->text[0].size() - 1);
    ++posts_->count;
    while (posts_->count < info.world) std::this_thread::sleep_for(1ms);
    std::vector<std::string> addresses;
    for (Rank rank = 0; rank < info.world; ++rank)
      addresses.emplace_back(posts_->text[static_cast<std::size_t>(rank)].data());
    return addresses;
  }
  // Waits until `rank` processes in all have come here.
  void meet(Rank ranks) {
    ++posts_->met;
    while (posts_->met < ranks) std::this_thread::sleep_for(1ms);
  }

 private:
  struct Posts {
    std::array<std::array<char, 256>, 64> text{};
    std::atomic<int> count = 0;
    std::atomic<int> met = 0;
  };
  void* memory_;
  Posts* posts_;
};

std::unique_ptr<Transport> connect(Board& board, const WorldInfo& info) {
  const auto endpoint = shm_endpoint(info);
  return endpoint->connect(board.exchange(info, endpoint->address()), Clock::now() + 30s);
}

// A process that runs `body` and exits with 0 if it neither threw nor failed an expectation; killed after a minute.
pid_t start_process(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child != 0) return child;
  alarm(60);
  try {
    body();
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  std::fflush(nullptr);
  _exit(::testing::Test::HasFailure() ? 1 : 0);
}

int status_of(pid_t process) {
  int status = -1;
  waitpid(process, &status, 0);
  return status;
}

void run_ranks(Rank world, const std::function<void(Transport&)>& body) {
  Board board;
  std::vector<pid_t> processes;
  for (Rank rank = 0; rank < world; ++rank)
    processes.push_back(start_process([&] { body(*connect(board, {.rank = rank, .world = world})); }));
  for (const pid_t process : processes) EXPECT_EQ(status_of(process), 0);
}

std::set<std::string> entries_in(const char* folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

// In /dev/shm, without those of Open MPI, which tests that run beside these may start.
std::set<std::string> shared_names() {
  auto names = entries_in("/dev/shm");
  std::erase_if(names, [](const std::string& name) { return name.starts_with("vader_segment."); });
  return names;
}

// The error of connecting rank 0 of 2 when rank 1 published `address`.
std::optional<Error> error_of_connecting(const std::string& address, std::chrono::milliseconds limit = 10s) {
  const auto endpoint = shm_endpoint({.rank = 0, .world = 2});
  try {
    endpoint->connect({endpoint->address(), address}, Clock::now() + limit);
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

class Shm : public ::testing::TestWithParam<Rank> {};

TEST_P(Shm, CarriesEveryStreamInOrderCompleteAndOnceBetweenProcesses) {
  run_ranks(GetParam(), [](Transport& transport) {
    testing::exchange_streams(transport, transport.world() <= 2 ? 1'000'000 : 60'000, 21);
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Shm, ::testing::Values(1, 2, 3, 8), ::testing::PrintToStringParamName());

TEST(ShmWait, EveryMessageWakesAProcessThatSleeps) {
  run_ranks(2, [](Transport& transport) {
    const Rank peer = 1 - transport.rank();
    for (int round = 0; round < 2000; ++round) {
      const std::byte ping{1};
      if (transport.rank() == 0) transport.try_send(peer, 0, {}, {&ping, 1});
      while (transport.try_recv(peer, 0, {}).empty()) {
        const auto start = Clock::now();
        transport.wait(20s);
        ASSERT_LT(Clock::now() - start, 20s) << "lost in round " << round;
      }
      transport.release(peer, 0, 1);
      if (transport.rank() == 1) transport.try_send(peer, 0, {}, {&ping, 1});
    }
  });
}

TEST(ShmTraits, SaysHowManyRanksShareACore) {
  run_ranks(3, [](Transport& transport) {
    const bool crowded = transport.traits().polls_before_yield == 0;
    cpu_set_t cpus;
    ASSERT_EQ(sched_getaffinity(0, sizeof cpus, &cpus), 0);
    EXPECT_EQ(crowded, CPU_COUNT(&cpus) < 3);
    EXPECT_EQ(transport.traits().name, "shm");
  });
}

// So that no training step pays for it.
TEST(ShmMemory, IsTouchedWhenTheRanksMeet) {
  if (support::sanitized) GTEST_SKIP() << "a sanitizer's own pages come at their first use";
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const auto faults = [] {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return static_cast<std::size_t>(usage.ru_minflt);
  };
  {
    constexpr int populate_write = 23;  // MADV_POPULATE_WRITE, which Linux has from 5.14 on
    void* const one = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const bool takes = madvise(one, page, populate_write) == 0;
    munmap(one, page);
    if (!takes) GTEST_SKIP() << "this kernel cannot find pages before they are used";
  }
  run_ranks(2, [&](Transport& transport) {
    const Rank peer = 1 - transport.rank();
    const std::size_t slice = transport.traits().slice_bytes;
    const std::vector<std::byte> data(slice, std::byte{1});
    std::vector<std::byte> received(slice);
    const std::size_t before = faults();
    for (int slots = 0; slots < 16; ++slots) {  // all of a ring, and some of it again
      while (transport.try_send(peer, 0, {}, data) == 0) std::this_thread::yield();
      ConstBytes view;
      while ((view = transport.try_recv(peer, 0, {})).empty()) std::this_thread::yield();
      std::memcpy(received.data(), view.data(), view.size());
      transport.release(peer, 0, view.size());
    }
    EXPECT_LT(faults() - before, 8 * slice / page / 8) << "of " << 8 * slice / page << " pages that a ring has";
    const std::size_t bytes = 1024 * page;
    const auto lent = transport.peer_memory()->allocate(bytes);
    const std::size_t unused = faults();
    std::memset(lent.get(), 1, bytes);
    EXPECT_LT(faults() - unused, 64) << "of 1024 pages of lent memory";
  });
}

TEST(ShmMemory, HasNoNameAndLeavesNoFileOpen) {
  const auto names = shared_names();
  const std::size_t files = entries_in("/proc/self/fd").size();
  {
    const auto left = shm_endpoint({.rank = 0, .world = 2});
    const auto right = shm_endpoint({.rank = 1, .world = 2});
    const std::vector<std::string> addresses{left->address(), right->address()};
    std::unique_ptr<Transport> other;
    std::thread thread([&] { other = right->connect(addresses, Clock::now() + 30s); });
    const auto transport = left->connect(addresses, Clock::now() + 30s);
    thread.join();
    EXPECT_EQ(shared_names(), names);
    EXPECT_EQ(entries_in("/proc/self/fd").size(), files) << "connected, the memory needs no file";
  }
  EXPECT_TRUE(error_of_connecting("nonsense"));
  EXPECT_EQ(entries_in("/proc/self/fd").size(), files);
}

TEST(ShmMemory, OutlivesAKilledPeerAndLeavesNothingBehind) {
  const auto names = shared_names();
  Board board;
  const pid_t victim = start_process([&] {
    const auto transport = connect(board, {.rank = 1, .world = 2});
    const std::byte last_word{7};
    transport->try_send(0, 0, {}, {&last_word, 1});
    board.meet(2);
    for (;;) pause();
  });
  const pid_t survivor = start_process([&] {
    const auto transport = connect(board, {.rank = 0, .world = 2});
    board.meet(2);
    kill(victim, SIGKILL);
    while (kill(victim, 0) == 0) std::this_thread::sleep_for(1ms);
    const ConstBytes view = transport->try_recv(1, 0, {});
    ASSERT_EQ(view.size(), 1u);
    EXPECT_EQ(view[0], std::byte{7});
    transport->release(1, 0, 1);
    const std::vector<std::byte> slice(transport->traits().slice_bytes);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(transport->try_send(1, 0, {}, slice), slice.size());
    transport->wait(1ms);
  });
  EXPECT_TRUE(WIFSIGNALED(status_of(victim)));
  EXPECT_EQ(status_of(survivor), 0);
  EXPECT_EQ(shared_names(), names);
}

TEST(ShmMeeting, NamesTheRankWhoseProcessIsGone) {
  auto address = *transport::ShmAddress::parse(shm_endpoint({.rank = 1, .world = 2})->address());
  const pid_t gone = start_process([] {});
  status_of(gone);
  address.process = gone;
  const auto error = error_of_connecting(address.text());
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), ErrorKind::unreachable);
  EXPECT_EQ(error->culprit(), 1);
  EXPECT_THAT(error->what(), HasSubstr("rank 1 (process " + std::to_string(gone) + ")"));
}

TEST(ShmMeeting, MemoryIsForItsUserOnly) {
  const auto peer = shm_endpoint({.rank = 1, .world = 2});
  const int file = transport::ShmAddress::parse(peer->address())->file;
  struct stat facts {};
  ASSERT_EQ(fstat(file, &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0600U);
  EXPECT_EQ(facts.st_uid, geteuid());
  if (fchown(file, 65534, 65534) != 0) GTEST_SKIP() << "only root can give a file to another user";
  const auto error = error_of_connecting(peer->address());
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), ErrorKind::unreachable);
  EXPECT_EQ(error->culprit(), 1);
  EXPECT_THAT(error->what(), HasSubstr("rank 1 (process " + std::to_string(getpid()) + ") belongs to another user"));
}

TEST(ShmMeeting, AnErrorShowsTheKindOfAnAddressAndNotItsToken) {
  const auto peer = shm_endpoint({.rank = 1, .world = 2});
  const std::string address = peer->address();
  const auto error = error_of_connecting(address + ":new");
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr("rank 1 published '" + address.substr(0, address.find(':')) + "'"));
  EXPECT_THAT(error->what(), ::testing::Not(HasSubstr(address.substr(address.rfind(':')))));
}

TEST(ShmMeeting, RefusesMemoryWithAnotherToken) {
  const auto peer = shm_endpoint({.rank = 1, .world = 2});
  auto address = *transport::ShmAddress::parse(peer->address());
  ++address.token[1];
  const auto error = error_of_connecting(address.text());
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), ErrorKind::unreachable);
  EXPECT_EQ(error->culprit(), 1);
}

TEST(ShmMeeting, RefusesAFileThatIsNoInbox) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  auto address = *transport::ShmAddress::parse(shm_endpoint({.rank = 1, .world = 2})->address());
  for (const int file : {ends[0], ends[1], null}) {
    address.file = file;
    const auto error = error_of_connecting(address.text());
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind(), ErrorKind::unreachable);
  }
  for (const int file : {ends[0], ends[1], null}) close(file);
}

TEST(ShmMeeting, RefusesAnInboxOfAnotherRankWorldOrEpoch) {
  const auto expect_refusal = [](const WorldInfo& info, ErrorKind kind) {
    const auto peer = shm_endpoint(info);
    const auto error = error_of_connecting(peer->address());
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind(), kind) << error->what();
    EXPECT_EQ(error->culprit(), 1);
  };
  expect_refusal({.rank = 0, .world = 2}, ErrorKind::mismatch);
  expect_refusal({.rank = 1, .world = 2, .epoch = 1}, ErrorKind::mismatch);
  expect_refusal({.rank = 1, .world = 3}, ErrorKind::unreachable);  // seen by its size
}

TEST(ShmMeeting, RefusesAddressesThatItCannotRead) {
  const auto peer = shm_endpoint({.rank = 1, .world = 2});
  const std::string good = peer->address();
  for (std::size_t cut = 0; cut < good.size(); cut += 3) {
    const auto error = error_of_connecting(good.substr(0, cut));
    ASSERT_TRUE(error) << good.substr(0, cut);
    EXPECT_EQ(error->culprit(), 1);
  }
  for (const auto& text : {"shm9" + good.substr(4), good + ":", good + "x"}) {
    const auto error = error_of_connecting(text);
    ASSERT_TRUE(error) << text;
    EXPECT_EQ(error->kind(), ErrorKind::mismatch);
  }
}

TEST(ShmMeeting, NamesTheRankThatDoesNotCome) {
  const auto peer = shm_endpoint({.rank = 1, .world = 2});
  const auto error = error_of_connecting(peer->address(), 20ms);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), ErrorKind::timeout);
  EXPECT_EQ(error->culprit(), 1);
}

TEST(ShmMeeting, RefusesWrongCounts) {
  EXPECT_THROW(shm_endpoint({.rank = 2, .world = 2}), Error);
  EXPECT_THROW(shm_endpoint({.rank = 0, .world = 0}), Error);
  const auto endpoint = shm_endpoint({.rank = 0, .world = 2});
  EXPECT_THROW(endpoint->connect({endpoint->address()}, Clock::now() + 1s), Error);
}

TEST(ShmReach, ReachesTheProcessesOfThisHostAndNoOthers) {
  const std::string here = shm_endpoint({.rank = 0, .world = 2})->address();
  auto elsewhere = *transport::ShmAddress::parse(here);
  elsewhere.host += "0";
  const std::string other_node = shm_endpoint({.rank = 1, .world = 2}, "b")->address();
  const auto hosts = shm_hosts({here, here, elsewhere.text(), other_node, "tcp:127.0.0.1:80"});
  EXPECT_EQ(hosts[0], hosts[1]);
  EXPECT_EQ((std::set<std::string>(hosts.begin(), hosts.end()).size()), 4U);
  EXPECT_EQ(hosts[4], "");
  const auto error = error_of_connecting(elsewhere.text());
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr("another host"));
}

TEST(ShmAddress, SurvivesBeingWritten) {
  const transport::ShmAddress address{
      .host = "boot.pid[1].0", .process = 4, .file = 5, .token = {6, ~std::uint64_t{0}}};
  const auto again = transport::ShmAddress::parse(address.text());
  ASSERT_TRUE(again);
  EXPECT_EQ(again->text(), address.text());
}

}  // namespace
}  // namespace ranvier
