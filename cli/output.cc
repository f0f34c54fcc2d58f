#include "output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ranvier/error.h"

namespace ranvier::cli {
ResultFile::ResultFile(std::filesystem::path path, std::string flag) : path_(std::move(path)), flag_(std::move(flag)) {
  if (path_.empty() || path_ == "-") return;
  if (std::filesystem::is_directory(path_)) throw_unwritable(EISDIR);
  const auto folder = path_.has_parent_path() ? path_.parent_path() : std::filesystem::path(".");
  if (access(folder.c_str(), W_OK | X_OK) != 0) throw_unwritable(errno);
}

void ResultFile::throw_unwritable(int problem) const {
  throw Error(ErrorKind::config, fmt::format("cannot write {} ({}); name another file with {}", path_.string(),
                                             std::strerror(problem), flag_));
}

void JsonFile::write(const nlohmann::json& value) const { file_.write(value.dump(2) + '\n'); }

void ResultFile::write(const std::string& text) const {
  if (path_.empty()) return;
  if (path_ == "-") {
    fmt::print("{}", text);
    return;
  }
  const std::filesystem::path part = fmt::format("{}.part-{}", path_.string(), getpid());
  std::ofstream file(part);
  file << text;
  file.close();
  std::error_code problem;
  if (file) std::filesystem::rename(part, path_, problem);
  if (file && !problem) return;
  const int why = problem ? problem.value() : errno;
  std::filesystem::remove(part, problem);
  throw_unwritable(why);
}

}  // namespace ranvier::cli
