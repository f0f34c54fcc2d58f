#include "ranvier/store.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <set>
#include <thread>
#include <vector>

#include "ranvier/error.h"
#include "support/refusal.h"
#include "support/temporary_folder.h"

namespace ranvier {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using support::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Runs `body(rank)` in `world` processes; true where all of them return true.
bool run_processes(int world, const std::function<bool(int)>& body) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < world; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);  // never outlives the test by more
      bool right = false;
      try {
        right = body(rank);
      } catch (const std::exception&) {
        right = false;
      }
      _exit(right ? 0 : 1);
    }
    children.push_back(child);
  }
  bool all_right = true;
  for (const pid_t child : children) {
    int status = -1;
    all_right &= child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return all_right;
}

// What every store promises, on both.
class AnyStore : public ::testing::TestWithParam<bool> {
 protected:
  TemporaryFolder directory_;
  std::shared_ptr<Store> store_ =
      GetParam() ? std::shared_ptr<Store>(file_store(directory_.path())) : std::shared_ptr<Store>(memory_store());
};

TEST_P(AnyStore, ReturnsWhatWasSetLast) {
  store_->set("key", "first");
  store_->set("key", "second");
  EXPECT_EQ(store_->get("key", milliseconds(0)), "second");
}

TEST_P(AnyStore, KeepsAnyBytesUnderAnyKey) {
  const std::string value("\0binary\n\xFF", 9);
  const std::vector<std::string> keys{"plain", "a/b", "a%2Fb", "a/../b", "a b", "dots..", "ключ", "lock", "x.lock"};
  for (std::size_t i = 0; i < keys.size(); ++i) store_->set(keys[i], value + std::to_string(i));
  for (std::size_t i = 0; i < keys.size(); ++i)
    EXPECT_EQ(store_->get(keys[i], milliseconds(0)), value + std::to_string(i)) << keys[i];
}

TEST_P(AnyStore, ThrowsATimeoutThatNamesTheKeyThatNeverCame) {
  try {
    store_->get("address/3", milliseconds(20));
    FAIL() << "nothing was set";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::timeout);
    EXPECT_THAT(error.what(), HasSubstr("address/3"));
    EXPECT_THAT(error.what(), HasSubstr("20 ms"));
  }
}

TEST_P(AnyStore, WakesAReaderWhenTheKeyIsSet) {
  std::jthread writer([this] {
    std::this_thread::sleep_for(milliseconds(20));
    store_->set("late", "value");
  });
  EXPECT_EQ(store_->get("late", milliseconds::max()), "value");
}

TEST_P(AnyStore, CountsFromZeroByAnyStep) {
  EXPECT_EQ(store_->add("count", 0), 0);
  EXPECT_EQ(store_->add("count", 5), 5);
  EXPECT_EQ(store_->add("count", -7), -2);
  EXPECT_EQ(store_->get("count", milliseconds(0)), "-2");
}

TEST_P(AnyStore, DoesNotCountByWhatIsNoNumber) {
  store_->set("text", "7 of them");
  EXPECT_THAT(support::refusal([&] { store_->add("text", 1); }, ErrorKind::config),
              testing::HasSubstr("is no counter (it holds no number)"));
  EXPECT_EQ(store_->get("text", milliseconds(0)), "7 of them");
}

TEST_P(AnyStore, LosesNoAdditionOfConcurrentThreads) {
  constexpr std::size_t threads = 4, times = 25;
  std::vector<std::vector<std::int64_t>> seen(threads);
  {
    std::vector<std::jthread> running;
    running.reserve(threads);
    for (auto& mine : seen)
      running.emplace_back([this, &mine] {
        for (std::size_t time = 0; time < times; ++time) mine.push_back(store_->add("count", 1));
      });
  }
  std::set<std::int64_t> values;
  for (const auto& mine : seen) values.insert(mine.begin(), mine.end());
  EXPECT_EQ(values.size(), threads * times);
  EXPECT_EQ(*values.rbegin(), std::int64_t{threads * times});
}

TEST_P(AnyStore, SeenUnderAPrefixIsApartFromTheRest) {
  const auto left = prefix_store(*store_, "left/"), right = prefix_store(*store_, "right/");
  left->set("key", "l");
  right->set("key", "r");
  EXPECT_EQ(left->get("key", milliseconds(0)), "l");
  EXPECT_EQ(right->get("key", milliseconds(0)), "r");
  EXPECT_EQ(store_->get("left/key", milliseconds(0)), "l");
  EXPECT_EQ(left->add("count", 2), 2);
  EXPECT_EQ(right->add("count", 3), 3);
  EXPECT_THROW(store_->get("key", milliseconds(1)), Error);
}

INSTANTIATE_TEST_SUITE_P(InAStore, AnyStore, ::testing::Bool(),
                         [](const auto& kind) { return std::string(kind.param ? "OfFiles" : "OfMemory"); });

TEST(FileStore, LetsProcessesExchangeTheirAddresses) {
  const TemporaryFolder directory;
  constexpr int world = 4;
  EXPECT_TRUE(run_processes(world, [&](int rank) {
    const auto store = file_store(directory.path() / "made" / "by" / "whoever comes first");
    store->set("address/" + std::to_string(rank), "host " + std::to_string(rank));
    for (int peer = 0; peer < world; ++peer)
      if (store->get("address/" + std::to_string(peer), seconds(30)) != "host " + std::to_string(peer)) return false;
    return true;
  }));
}

TEST(FileStore, LosesNoAdditionOfConcurrentProcesses) {
  const TemporaryFolder directory;
  constexpr int world = 4, times = 50;
  EXPECT_TRUE(run_processes(world, [&](int) {
    const auto store = file_store(directory.path());
    std::int64_t before = 0;
    for (int time = 0; time < times; ++time) {
      const std::int64_t value = store->add("count", 1);
      if (value <= before) return false;
      before = value;
    }
    return true;
  }));
  EXPECT_EQ(file_store(directory.path())->add("count", 0), world * times);
}

TEST(FileStore, NeverShowsAValueHalfWritten) {
  const TemporaryFolder directory;
  constexpr int times = 100;
  EXPECT_TRUE(run_processes(3, [&](int rank) {
    const auto store = file_store(directory.path());
    for (int time = 0; time < times; ++time) {
      if (rank == 0) {
        store->set("value", std::string(10'000, static_cast<char>('a' + time % 26)));
        continue;
      }
      const std::string value = store->get("value", seconds(30));
      if (value.size() != 10'000 || value.find_first_not_of(value[0]) != std::string::npos) return false;
    }
    return true;
  }));
}

// Who polls looks for the file twice: whether it can be read, and whether it is there.
TEST(FileStore, FindsAValueThatComesWhileItLooks) {
  const TemporaryFolder directory;
  constexpr int keys = 2000;
  EXPECT_TRUE(run_processes(2, [&](int rank) {
    const auto store = file_store(directory.path());
    for (int key = 0; key < keys; ++key) {
      const std::string name = std::to_string(key);
      if (rank == 0) {
        store->set(name, "value");
        continue;
      }
      for (bool has_come = false; !has_come;) try {
          has_come = store->get(name, milliseconds(0)) == "value";
        } catch (const Error& problem) {
          if (problem.kind() != ErrorKind::timeout) return false;
        }
    }
    return true;
  }));
}

TEST(FileStore, LetsGoOfTheCounterWhenItsHolderDies) {
  const TemporaryFolder directory;
  const pid_t child = fork();
  if (child == 0) {
    const auto store = file_store(directory.path());
    for (;;) store->add("count", 1);
  }
  ASSERT_GT(child, 0);
  file_store(directory.path())->get("count", seconds(30));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const auto store = file_store(directory.path());
  const std::int64_t value = store->add("count", 0);
  EXPECT_GT(value, 0);
  EXPECT_EQ(store->add("count", 1), value + 1);
}

TEST(FileStore, SaysWhyItCannotWriteAndWhatHelps) {
  const TemporaryFolder folder;
  const auto store = file_store(folder.path() / "store");
  const std::string large(4096, 'x');
  // As processes: a limit on the size of files holds for all that follows.
  EXPECT_TRUE(run_processes(1, [&](int) {
    const rlimit limit{1024, 1024};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string sentence = support::refusal([&] { store->set("key", large); }, ErrorKind::config);
    return sentence.find("key (File too large); allow this process larger files (ulimit -f)") != std::string::npos;
  }));
  std::filesystem::remove_all(folder.path() / "store");
  EXPECT_THAT(support::refusal([&] { store->set("key", "value"); }, ErrorKind::config),
              AllOf(HasSubstr((folder.path() / "store" / "key").string()), HasSubstr("No such file or directory"),
                    HasSubstr("keep the store's directory")));
}

TEST(FileStore, WaitsForNoPipeOfAKeysName) {
  const TemporaryFolder folder;
  const auto store = file_store(folder.path());
  ASSERT_EQ(mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  alarm(60);  // opening it would wait for ever
  EXPECT_THAT(support::refusal([&] { store->get("pipe", milliseconds(20)); }, ErrorKind::config),
              AllOf(HasSubstr("'pipe'"), HasSubstr("20 ms"), HasSubstr("no regular file")));
  EXPECT_THAT(support::refusal([&] { store->add("pipe", 1); }, ErrorKind::config),
              AllOf(HasSubstr((folder.path() / "pipe").string()), HasSubstr("no regular file")));
  alarm(0);
  store->set("pipe", "value");
  EXPECT_EQ(store->get("pipe", milliseconds(0)), "value");
  EXPECT_THAT(support::refusal([&] { store->add("pipe", 1); }, ErrorKind::config), HasSubstr("no number"));
}

TEST(FileStore, LetsOnlyThisUserIntoADirectoryThatItMakes) {
  const TemporaryFolder folder;
  const auto mode = [](const std::filesystem::path& path) { return std::filesystem::status(path).permissions(); };
  using std::filesystem::perms;
  file_store(folder.path() / "above" / "made");
  EXPECT_EQ(mode(folder.path() / "above" / "made"), perms::owner_all);
  file_store(folder.path() / "slash" / "");
  EXPECT_EQ(mode(folder.path() / "slash"), perms::owner_all);

  const auto shared = folder.path() / "shared";
  std::filesystem::create_directory(shared);
  std::filesystem::permissions(shared, perms::owner_all | perms::group_all);
  file_store(shared);
  EXPECT_EQ(mode(shared), perms::owner_all | perms::group_all);
}

// The job's token is among them.
TEST(FileStore, LetsOnlyThisUserReadItsFiles) {
  const TemporaryFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  const mode_t before = umask(0);
  const auto store = file_store(folder.path());
  store->set("text", "first");
  store->set("text", "second");
  store->add("counter", 1);
  umask(before);
  using std::filesystem::perms;
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    EXPECT_EQ(entry.status().permissions(), perms::owner_read | perms::owner_write) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 2U);
}

TEST(FileStore, NamesTheLimitOfItsProcessThatItMeets) {
  const TemporaryFolder folder;
  const auto store = file_store(folder.path());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{3, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  std::string said;
  try {
    store->set("key", "value");
  } catch (const Error& error) {
    said = error.what();
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(said, HasSubstr("allow this process more open files (ulimit -n)"));
}

TEST(FileStore, OfARelativePathStaysWhereItWasMade) {
  const TemporaryFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const auto store = file_store("here");
  std::filesystem::current_path(before);
  store->set("key", "value");
  EXPECT_EQ(file_store(folder.path() / "here")->get("key", milliseconds(0)), "value");
  EXPECT_THROW(file_store(""), Error);
}

TEST(FileStore, SaysWhichDirectoryItCannotCreate) {
  try {
    file_store("/proc/ranvier");
    FAIL() << "/proc takes no directories";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::config);
    EXPECT_THAT(error.what(), HasSubstr("/proc/ranvier"));
  }
}

}  // namespace
}  // namespace ranvier
