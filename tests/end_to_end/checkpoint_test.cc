#include "integrations/trainer/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <bit>
#include <fstream>
#include <iterator>
#include <limits>

#include "ranvier/error.h"
#include "support/refusal.h"
#include "support/temporary_folder.h"

namespace ranvier::trainer {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class CheckpointTest : public testing::Test {
 protected:
  static Checkpoint sample() {
    return {.identity = {{"--model", "cnn"}, {"--seed", "3"}},
            .step = 1234,
            .seconds = 5.5,
            .tuning = "all_reduce shm 4 max ring\n",
            .parameters = {1.5F, -0.0F, std::numeric_limits<float>::quiet_NaN(), 1e-42F},
            .momentum = {0.25F, std::numeric_limits<float>::infinity(), -3.0F, 0.0F},
            .rank_state = {{std::byte{1}, std::byte{2}, std::byte{3}}, {}, {std::byte{4}}}};
  }
  std::string bytes() const {
    std::ifstream file(file_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  void put(const std::string& bytes) const { std::ofstream(file_, std::ios::binary) << bytes; }
  std::string problem() const {
    return support::refusal([&] { load_checkpoint(file_); }, ErrorKind::config);
  }

  const support::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  const fs::path file_ = folder_ / "checkpoint.ranvier";
};

TEST_F(CheckpointTest, WhatIsLoadedIsWhatWasSavedBitForBit) {
  save_checkpoint(file_, sample());
  const Checkpoint loaded = load_checkpoint(file_);
  EXPECT_EQ(loaded.identity, sample().identity);
  EXPECT_EQ(loaded.step, 1234U);
  EXPECT_EQ(loaded.seconds, 5.5);
  EXPECT_EQ(loaded.tuning, sample().tuning);
  EXPECT_EQ(loaded.rank_state, sample().rank_state);
  const auto expect_bits = [](const std::vector<float>& found, const std::vector<float>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_EQ(std::bit_cast<std::uint32_t>(found[i]), std::bit_cast<std::uint32_t>(expected[i]));
  };
  expect_bits(loaded.parameters, sample().parameters);
  expect_bits(loaded.momentum, sample().momentum);
}

TEST_F(CheckpointTest, EveryChangedByteIsFound) {
  save_checkpoint(file_, sample());
  const std::string whole = bytes();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 0x10);
    put(changed);
    ASSERT_THAT(problem(), HasSubstr(file_.string())) << "byte " << i;
  }
}

TEST_F(CheckpointTest, EveryMissingEndIsFound) {
  save_checkpoint(file_, sample());
  const std::string whole = bytes();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    put(whole.substr(0, size));
    ASSERT_NE(problem(), "nothing was refused") << size << " bytes";
  }
  put(whole + "x");
  EXPECT_THAT(problem(), HasSubstr("damaged"));
}

TEST_F(CheckpointTest, AForeignFileIsNotACheckpoint) {
  put("PK\x03\x04 a zip file, as torch.save writes");
  EXPECT_THAT(problem(), HasSubstr("not a checkpoint"));
  fs::remove(file_);
  EXPECT_THAT(problem(), HasSubstr("cannot be opened"));
  fs::create_directory(file_);
  EXPECT_THAT(problem(), HasSubstr("no regular file"));
}

TEST_F(CheckpointTest, ASaveThatFailsLeavesTheOldOneAndNothingElse) {
  save_checkpoint(file_, sample());
  const std::string before = bytes();
  // No file may grow to the size of a checkpoint.
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{before.size() / 2, limit.rlim_max};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string sentence = support::refusal([&] { save_checkpoint(file_, sample()); }, ErrorKind::config);
  setrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, handler);
  EXPECT_THAT(sentence, HasSubstr(file_.string() + " (File too large); name another place with --save"));
  EXPECT_EQ(bytes(), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
  EXPECT_THROW(save_checkpoint(folder_ / "missing" / "file", sample()), Error);
}

TEST_F(CheckpointTest, LinksAndDevicesStayAndOtherFilesAreNotTouched) {
  const fs::path part = folder_ / "checkpoint.ranvier.part", link = folder_ / "link", device = folder_ / "device";
  std::ofstream(part) << "somebody's own";
  fs::create_symlink(file_, link);
  fs::create_symlink("/dev/null", device);
  for (const fs::path& path : {link, device}) {
    check_checkpoint_place(path);
    save_checkpoint(path, sample());
    EXPECT_TRUE(fs::is_symlink(path)) << path;
  }
  EXPECT_EQ(load_checkpoint(file_).step, sample().step);
  std::string kept;
  std::getline(std::ifstream(part), kept);
  EXPECT_EQ(kept, "somebody's own");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 4);
}

TEST_F(CheckpointTest, OtherSettingsAreNamed) {
  const auto problem_with = [&](const Identity& identity) {
    return support::refusal([&] { check_identity(file_, sample(), identity); }, ErrorKind::config);
  };
  EXPECT_EQ(problem_with(sample().identity), "nothing was refused");
  EXPECT_THAT(problem_with({{"--model", "cnn"}, {"--seed", "4"}}), HasSubstr("--seed 3 and this run has 4"));
  EXPECT_THAT(problem_with({{"--model", "cnn"}, {"--seed", "3"}, {"--lr", "1"}}), HasSubstr("--lr"));
  EXPECT_THAT(problem_with({{"--lr", "1"}, {"--optimizer", "adamw"}, {"--model", "cnn"}}), HasSubstr("--optimizer"));
  EXPECT_THAT(problem_with({{"--parallel", "tensor:2"}, {"--model", "cnn"}, {"--seed", ""}}), HasSubstr("--parallel"));
}

TEST_F(CheckpointTest, AFolderMayStandForTheFileInIt) {
  EXPECT_EQ(checkpoint_file(folder_), file_);
  EXPECT_EQ(checkpoint_file(folder_ / "new" / ""), folder_ / "new" / "checkpoint.ranvier");
  EXPECT_EQ(checkpoint_file(folder_ / "name"), folder_ / "name");
}

}  // namespace
}  // namespace ranvier::trainer
