// Files to which several runs add what they learned.
#include "engine/tuning_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "ranvier/error.h"
#include "support/refusal.h"
#include "support/temporary_folder.h"

namespace ranvier::engine {
namespace {

namespace fs = std::filesystem;
using support::text_of;

TuningRow row(std::size_t up_to, const std::string& algorithm) {
  return {.transport = "tcp", .ranks = 4, .up_to = up_to, .algorithm = algorithm};
}

RowsByKind one_row(const TuningTable& /*now*/) { return {{row(TuningRow::max, "ring")}}; }

std::string refusal(const std::function<void()>& call) { return support::refusal(call, ErrorKind::config); }

TEST(TuningFile, KeepsWhatPeopleWroteBesideTheRows) {
  const support::TemporaryFolder folder;
  const fs::path file = folder.path() / "tuning.txt";
  std::ofstream(file) << "# mine\nbroadcast tcp 4 max binomial_tree  # by hand\n";
  complete(file, one_row);
  EXPECT_THAT(text_of(file), testing::HasSubstr("# mine\nbroadcast tcp 4 max binomial_tree  # by hand\n"));
  EXPECT_EQ(read_to_complete(file).rows().size(), 2U);
}

TEST(TuningFile, ALinkStaysOneAndItsFileIsWritten) {
  const support::TemporaryFolder folder;
  fs::create_directory(folder.path() / "shared");
  fs::create_symlink("shared/tuning.txt", folder.path() / "link");
  complete(folder.path() / "link", one_row);
  EXPECT_TRUE(fs::is_symlink(folder.path() / "link"));
  EXPECT_EQ(TuningTable::read(folder.path() / "shared" / "tuning.txt").rows().size(), 1U);
}

TEST(TuningFile, IsLeftAloneWhereNothingIsToBeAdded) {
  const support::TemporaryFolder folder;
  complete(folder.path() / "tuning.txt", [](const TuningTable&) { return RowsByKind(); });
  EXPECT_FALSE(fs::exists(folder.path() / "tuning.txt"));
}

TEST(TuningFile, OfSeveralWhoAddAtOnceNoneIsLost) {
  const support::TemporaryFolder folder;
  const fs::path file = folder.path() / "tuning.txt";
  constexpr std::size_t writers = 4, rounds = 8;
  {
    std::vector<std::jthread> threads;
    for (std::size_t writer = 0; writer < writers; ++writer)
      threads.emplace_back([&, writer] {
        for (std::size_t round = 0; round < rounds; ++round)
          complete(file, [&](const TuningTable& now) {
            const std::size_t from = 1024 * (round * writers + writer);
            std::vector<TuningRow> rows = now.rows();
            if (rows.empty()) rows.push_back(row(TuningRow::max, "auto"));
            return RowsByKind{overlaid(rows, from, row(from + 1023, writer % 2 == 0 ? "ring" : "direct"))};
          });
      });
  }
  const std::vector<TuningRow> rows = TuningTable::read(file).rows();
  EXPECT_EQ(std::ranges::count_if(rows, [](const TuningRow& each) { return each.algorithm != "auto"; }),
            writers * rounds);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1) << "nothing stays beside it";
}

TEST(TuningFile, APipeOrADeviceIsNoTable) {
  const support::TemporaryFolder folder;
  const fs::path pipe = folder.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const fs::path& file : {pipe, fs::path("/dev/zero")}) {
    const auto refused = testing::AllOf(testing::HasSubstr(file.string()), testing::HasSubstr("no regular file"));
    EXPECT_THAT(refusal([&] { TuningTable::read(file); }), refused);
    EXPECT_THAT(refusal([&] { text_if_there(file); }), refused);
    EXPECT_THAT(refusal([&] { complete(file, one_row); }), refused);
  }
  EXPECT_TRUE(fs::is_fifo(pipe));
}

TEST(TuningFile, WhatTheFileSystemRefusesIsAnErrorWithARemedy) {
  const support::TemporaryFolder folder;
  const fs::path too_long = folder.path() / std::string(300, 'x');
  EXPECT_THAT(refusal([&] { read_to_complete(too_long); }), testing::HasSubstr("name another file"));
  EXPECT_THAT(refusal([&] { complete(too_long, one_row); }), testing::HasSubstr("name another file"));
  EXPECT_THAT(refusal([&] { read_to_complete(folder.path() / "none" / "tuning.txt"); }),
              testing::HasSubstr("make its folder writable"));
  fs::create_symlink("loop", folder.path() / "loop");
  EXPECT_THAT(refusal([&] { complete(folder.path() / "loop" / "tuning.txt", one_row); }),
              testing::HasSubstr("name another file"));
  EXPECT_THAT(refusal([&] { complete(folder.path() / "none" / "tuning.txt", one_row); }),
              testing::HasSubstr("make its folder writable"));
  EXPECT_THAT(refusal([&] { complete(folder.path(), one_row); }), testing::HasSubstr(folder.path().string()));
}

}  // namespace
}  // namespace ranvier::engine
