#include "base/whole_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

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
