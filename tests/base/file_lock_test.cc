#include "base/file_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <thread>

#include "support/temporary_folder.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

Fd opened(const std::filesystem::path& path) { return Fd(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600)); }

TEST(FileLock, IsWaitedForUntilTheDeadlineAndNoLonger) {
  const support::TemporaryFolder folder;
  const Fd holder = opened(folder.path() / "lock"), other = opened(folder.path() / "lock");
  ASSERT_FALSE(lock_until(holder, LOCK_EX, steady_clock::now()));
  EXPECT_EQ(lock_until(other, LOCK_EX, steady_clock::now() + 20ms), std::errc::timed_out);
  EXPECT_EQ(lock_until(other, LOCK_SH, steady_clock::now() + 20ms), std::errc::timed_out);
  std::jthread release([&] {
    std::this_thread::sleep_for(20ms);
    flock(holder.get(), LOCK_UN);
  });
  EXPECT_FALSE(lock_until(other, LOCK_EX, steady_clock::now() + 30s));
}

TEST(FileLock, SaysWhyThereIsNone) {
  EXPECT_EQ(lock_until(Fd(), LOCK_EX, steady_clock::now() + 30s), std::errc::bad_file_descriptor);
}

}  // namespace
}  // namespace ranvier
