#include "base/whole_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/socket.h"
#include "support/temporary_folder.h"

namespace ranvier {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

auto entries(const fs::path& folder) { return std::distance(fs::directory_iterator(folder), {}); }

TEST(WholeFile, ReplacesWhatWasThereAndLeavesNothingBesideIt) {
  const support::TemporaryFolder folder;
  const fs::path file = folder.path() / "file";
  EXPECT_FALSE(write_whole(file, "first"));
  EXPECT_FALSE(write_whole(file, "second"));
  EXPECT_EQ(text_of(file), "second");
  EXPECT_EQ(entries(folder.path()), 1);
}

TEST(WholeFile, SaysWhyItCannotBeWrittenAndLeavesNothing) {
  const support::TemporaryFolder folder;
  EXPECT_EQ(write_whole(folder.path() / "none" / "file", "text"), std::errc::no_such_file_or_directory);
  fs::create_directories(folder.path() / "taken" / "by");
  EXPECT_TRUE(write_whole(folder.path() / "taken", "text"));
  EXPECT_EQ(entries(folder.path()), 1);
}

// As a process that is killed while it saves a large checkpoint; here by the kernel, at a size that it may not exceed.
TEST(WholeFile, OfAProcessThatIsKilledNothingStays) {
  const support::TemporaryFolder folder;
  const fs::path file = folder.path() / "file";
  if (const Fd nameless(open(folder.path().c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600)); !nameless)
    GTEST_SKIP() << "this file system knows no files without a name";
  ASSERT_FALSE(write_whole(file, "first"));
  const std::string large(4 << 20, 'x');
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    signal(SIGXFSZ, SIG_DFL);
    write_whole(file, large);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(text_of(file), "first");
  EXPECT_EQ(entries(folder.path()), 1);
}

TEST(WholeFile, IsReadAsItWasWritten) {
  const support::TemporaryFolder folder;
  const fs::path file = folder.path() / "file";
  for (const std::size_t size : {0, 1, 65535, 65536, 200'000}) {
    const std::string text(size, 'x');
    EXPECT_FALSE(write_whole(file, text));
    const WholeFile read = read_whole(file, size);
    EXPECT_EQ(read.problem, "");
    EXPECT_EQ(read.text, text);
  }
  EXPECT_FALSE(read_whole("/proc/self/status").text.empty()) << "whose size is 0";
}

TEST(WholeFile, WhatCouldTakeForEverOrAllMemoryIsNotRead) {
  const support::TemporaryFolder folder;
  const fs::path pipe = folder.path() / "pipe", large = folder.path() / "large";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const fs::path& file : {pipe, fs::path("/dev/zero")})
    EXPECT_EQ(read_whole(file).problem, "it is no regular file");
  EXPECT_FALSE(write_whole(large, "x"));
  fs::resize_file(large, std::uintmax_t{1} << 40);
  const WholeFile read = read_whole(large);
  EXPECT_EQ(read.problem, "it is larger than 16 MiB");
  EXPECT_EQ(read.text, "");
  EXPECT_EQ(read_whole(folder.path()).problem, "it is a folder");
  EXPECT_EQ(read_whole(folder.path() / "none").problem, "No such file or directory");
}

TEST(WholeFile, ANamedOneKeepsLinksAndDevices) {
  const support::TemporaryFolder folder;
  const fs::path link = folder.path() / "link", device = folder.path() / "device";
  fs::create_symlink("file", link);
  fs::create_symlink("/dev/null", device);
  for (const std::string text : {"first", "second"}) {
    EXPECT_FALSE(check_named(link));
    EXPECT_FALSE(write_named(link, text, true));
    EXPECT_EQ(text_of(folder.path() / "file"), text);
  }
  EXPECT_FALSE(check_named(device));
  EXPECT_FALSE(write_named(device, "text", true));
  EXPECT_TRUE(fs::is_symlink(link) && fs::is_symlink(device));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_EQ(entries(folder.path()), 3);
}

TEST(WholeFile, ANamedOneThatCannotBeIsFoundOutWithoutATrace) {
  const support::TemporaryFolder folder;
  fs::create_symlink("loop", folder.path() / "loop");
  EXPECT_EQ(check_named(folder.path() / "loop"), std::errc::too_many_symbolic_link_levels);
  EXPECT_EQ(check_named(folder.path()), std::errc::is_a_directory);
  EXPECT_EQ(check_named(folder.path() / "none" / "file"), std::errc::no_such_file_or_directory);
  EXPECT_TRUE(check_named("/proc/none")) << "which access() grants root";
  EXPECT_FALSE(check_named(folder.path() / "file"));
  EXPECT_EQ(entries(folder.path()), 1);
}

TEST(WholeFile, LinksAreFollowedAlsoToNothing) {
  const support::TemporaryFolder folder;
  const fs::path base = fs::canonical(folder.path());
  fs::create_symlink("target", base / "link");
  fs::create_symlink("link", base / "further");
  EXPECT_EQ(followed(base / "further"), base / "target");
  fs::create_symlink("loop", base / "loop");
  EXPECT_EQ(followed(base / "loop"), fs::path());
}

}  // namespace
}  // namespace ranvier
