// Data files as people download them, and as a full disk or a broken download leaves them.
#include "integrations/trainer/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <fstream>
#include <map>
#include <set>

#include "support/refusal.h"

namespace ranvier::trainer {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class DataFiles : public testing::Test {
 protected:
  DataFiles() : folder_(fs::temp_directory_path() / ("ranvier-dataset-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~DataFiles() override { fs::remove_all(folder_); }

  fs::path write(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return folder_ / name;
  }
  fs::path write_compressed(const std::string& name, const std::string& content) const {
    const gzFile file = gzopen((folder_ / name).c_str(), "wb");
    gzwrite(file, content.data(), static_cast<unsigned>(content.size()));
    gzclose(file);
    return folder_ / name;
  }
  static std::string refusal(const fs::path& data) {
    return support::refusal([&] { load_dataset(data.string()); }, ErrorKind::config);
  }
  // Records of CIFAR-10 whose pixels all are their number.
  static std::string records(int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += static_cast<char>(i % 10) + std::string(3072, static_cast<char>(i));
    return all;
  }
  static std::string prose() {
    std::string text;
    for (int i = 0; text.size() < 10'000; ++i) text += "line " + std::to_string(i * i) + " of a text\n";
    return text;
  }

  const fs::path folder_;
};

TEST_F(DataFiles, BatchesOfCifarAreReadInTheOrderOfTheirNames) {
  write("data_batch_2.bin", records(5));
  write_compressed("data_batch_1.bin.gz", records(20));
  write("test_batch.bin", records(3));
  const auto data = load_dataset(folder_.string());
  const auto& images = std::get<Images>(data.content);
  EXPECT_EQ(images.channels, 3U);
  EXPECT_EQ(images.classes, 10U);
  ASSERT_EQ(images.train.count(), 25U);
  EXPECT_EQ(images.test.count(), 3U);
  EXPECT_EQ(images.train.pixels.size(), 25U * 3072);
  EXPECT_EQ(images.train.labels[17], 7);
  EXPECT_EQ(images.train.pixels[17 * 3072], 17);
  EXPECT_EQ(images.train.labels[20], 0) << "the second file begins";
}

TEST_F(DataFiles, DamagedBatchesAreNamed) {
  write("test_batch.bin", records(3));
  const std::string whole = records(4);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, whole.size() - 1}) {
    write("data_batch_1.bin", whole.substr(0, size));
    EXPECT_THAT(refusal(folder_), AllOf(HasSubstr("data_batch_1.bin"), HasSubstr("truncated"))) << size;
  }
  std::string wrong = whole;
  wrong[2 * 3073] = 12;
  write("data_batch_1.bin", wrong);
  EXPECT_THAT(refusal(folder_), HasSubstr("label 12 at record 2"));
  write("data_batch_1.bin", whole);
  fs::remove(folder_ / "test_batch.bin");
  EXPECT_THAT(refusal(folder_), AllOf(HasSubstr("test_batch.bin"), HasSubstr("cannot be opened")));
}

TEST_F(DataFiles, TextBecomesNumbersOfItsCharactersAndItsLastTenthTests) {
  const std::string text = prose();
  for (const auto& file : {write("prose.txt", text), write_compressed("prose.txt.gz", text)}) {
    const auto data = load_dataset(file.string());
    const auto& read = std::get<Text>(data.content);
    EXPECT_EQ(read.characters, std::set<char>(text.begin(), text.end()).size());
    EXPECT_EQ(read.test.size(), text.size() / 10);
    ASSERT_EQ(read.train.size() + read.test.size(), text.size());
    const auto number = [&](std::size_t i) {
      return i < read.train.size() ? read.train[i] : read.test[i - read.train.size()];
    };
    std::map<char, int> seen;
    for (std::size_t i = 0; i < text.size(); ++i) {
      ASSERT_LT(number(i), read.characters);
      ASSERT_EQ(seen.try_emplace(text[i], number(i)).first->second, number(i)) << "one number for each character";
    }
  }
}

TEST_F(DataFiles, WhatIsNoTextIsRefused) {
  EXPECT_THAT(refusal(write("short", "a few words")), HasSubstr("11 bytes"));
  EXPECT_THAT(refusal(write("same", std::string(9000, 'a'))), HasSubstr("one character only"));
  std::string binary = prose();
  binary[4321] = '\0';
  EXPECT_THAT(refusal(write("binary", binary)), HasSubstr("byte 4321 of it is zero"));
  const auto whole = write_compressed("cut.gz", prose());
  fs::resize_file(whole, fs::file_size(whole) - 20);
  EXPECT_THAT(refusal(whole), AllOf(HasSubstr("cut.gz"), HasSubstr("truncated")));
  EXPECT_THAT(refusal(folder_ / "nothing"), HasSubstr("no folder or file"));
}

TEST_F(DataFiles, AnotherTextHasAnotherFingerprint) {
  std::string text = prose();
  const auto before = load_dataset(write("prose.txt", text).string()).fingerprint;
  std::swap(text[100], text[101]);
  EXPECT_NE(load_dataset(write("prose.txt", text).string()).fingerprint, before);
}

}  // namespace
}  // namespace ranvier::trainer
