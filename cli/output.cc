#include "output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ranvier/error.h"

namespace ranvier::cli {
namespace {

[[noreturn]] void throw_unwritable(const std::filesystem::path& path) {
  throw Error(ErrorKind::config,
              fmt::format("cannot write {} ({}); name another file with --json", path.string(), std::strerror(errno)));
}

}  // namespace

JsonFile::JsonFile(std::filesystem::path path) : path_(std::move(path)) {
  if (path_.empty() || path_ == "-") return;
  if (std::filesystem::is_directory(path_)) {
    errno = EISDIR;
    throw_unwritable(path_);
  }
  part_ = fmt::format("{}.part-{}", path_.string(), getpid());
  if (!std::ofstream(part_)) throw_unwritable(path_);
}

JsonFile::~JsonFile() {
  std::error_code ignored;
  if (!part_.empty()) std::filesystem::remove(part_, ignored);
}

void JsonFile::write(const nlohmann::json& value) {
  const std::string text = value.dump(2) + '\n';
  if (path_.empty()) return;
  if (path_ == "-") {
    fmt::print("{}", text);
    return;
  }
  std::ofstream file(part_);
  file << text;
  file.close();
  if (!file) throw_unwritable(path_);
  std::filesystem::rename(part_, path_);
}

}  // namespace ranvier::cli
