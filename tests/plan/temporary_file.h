// A file that lives as long as a test.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace ranvier {

class FileTest : public testing::Test {
 protected:
  ~FileTest() override { std::filesystem::remove(path_); }

  std::filesystem::path holding(const std::string& text) {
    std::ofstream(path_, std::ios::binary) << text;
    return path_;
  }

  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("ranvier-plan-test-" + std::to_string(getpid()) + ".toml");
};

}  // namespace ranvier
