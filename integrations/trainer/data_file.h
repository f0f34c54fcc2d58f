// A file of data that is read forwards, plain or gzip: zlib finds out. What is wrong with it is said in one sentence.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

namespace ranvier::trainer {

class DataFile {
 public:
  // Throws Error{config}, as all below.
  explicit DataFile(const std::filesystem::path& path);

  // As many bytes as are left, `count` at most.
  std::size_t read(std::uint8_t* to, std::size_t count);
  // All that is left. Throws where that is more than `most`.
  std::vector<std::uint8_t> read_all(std::size_t most = std::size_t{4} << 30);
  // Whether the last read came to the end of the file before the end of the compressed stream.
  bool cut_off() const { return cut_off_; }

  [[noreturn]] void refuse(std::string_view problem) const;

 private:
  struct Close {
    void operator()(gzFile file) const { gzclose(file); }
  };
  const std::filesystem::path path_;
  std::unique_ptr<gzFile_s, Close> file_;
  bool cut_off_ = false;
};

}  // namespace ranvier::trainer
