#include "integrations/trainer/data_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "ranvier/error.h"

namespace ranvier::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t piece = 1 << 20;  // read at once: memory grows with the file

}  // namespace

DataFile::DataFile(const std::filesystem::path& path) : path_(path) {
  std::error_code unknown;
  if (fs::exists(path, unknown) && !fs::is_regular_file(path, unknown)) refuse("is no regular file");
  errno = 0;
  file_.reset(gzopen(path.c_str(), "rb"));
  if (!file_) refuse(fmt::format("cannot be opened ({})", std::strerror(errno)));
  gzbuffer(file_.get(), 1 << 17);
}

std::size_t DataFile::read(std::uint8_t* to, std::size_t count) {
  const int got = gzread(file_.get(), to, static_cast<unsigned>(count));
  int problem = Z_OK;
  const char* words = gzerror(file_.get(), &problem);
  cut_off_ = problem == Z_BUF_ERROR;
  if (got < 0 && !cut_off_)
    refuse(fmt::format("cannot be read ({})", problem == Z_ERRNO ? std::strerror(errno) : words));
  return got < 0 ? 0 : static_cast<std::size_t>(got);
}

std::vector<std::uint8_t> DataFile::read_all(std::size_t most) {
  std::vector<std::uint8_t> all;
  for (;;) {
    const std::size_t before = all.size();
    all.resize(before + piece);
    const std::size_t got = read(all.data() + before, piece);
    all.resize(before + got);
    if (cut_off_) refuse("is truncated: its compressed stream has no end");
    if (all.size() > most) refuse(fmt::format("has more than {} bytes", most));
    if (got < piece) return all;
  }
}

void DataFile::refuse(std::string_view problem) const {
  throw Error(ErrorKind::config,
              fmt::format("the data file {} {}; put a whole one in its place or name other data with --data",
                          path_.string(), problem));
}

}  // namespace ranvier::trainer
