#include "output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/socket.h"
#include "base/whole_file.h"
#include "ranvier/error.h"

namespace ranvier::cli {
namespace {

namespace fs = std::filesystem;

// Not a folder's entry that another file may take: a shell's "> file" holds on to the file itself.
bool is_stdout(const fs::path& path) {
  struct stat named {};
  struct stat ours {};
  return stat(path.c_str(), &named) == 0 && fstat(STDOUT_FILENO, &ours) == 0 && named.st_dev == ours.st_dev &&
         named.st_ino == ours.st_ino;
}

bool is_special(const fs::path& path) { return fs::exists(path) && !fs::is_regular_file(path); }

// 0, or an errno. A pipe that nobody reads is refused instead of waited for.
int write_to_special(const fs::path& path, std::string_view text) {
  const Fd file(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file || fcntl(file.get(), F_SETFL, O_WRONLY) != 0) return errno;
  while (!text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0 && errno != EINTR) return errno;
    text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
  }
  return 0;
}

}  // namespace

int after_output(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  fmt::print(stderr, "ranvier: stdout did not take all of the output ({}); what is printed above is incomplete\n",
             std::strerror(errno));
  return code == 0 ? 1 : code;
}

ResultFile::ResultFile(std::filesystem::path path, std::string flag) : path_(std::move(path)), flag_(std::move(flag)) {
  if (path_.empty() || path_ == "-") return;
  if (is_stdout(path_)) {
    path_ = "-";
    return;
  }
  const fs::path target = followed(path_);
  if (target.empty()) throw_unwritable(ELOOP);
  path_ = target;
  if (fs::is_directory(path_)) throw_unwritable(EISDIR);
  if (is_special(path_)) {
    if (access(path_.c_str(), W_OK) != 0) throw_unwritable(errno);
    return;
  }
  const auto folder = path_.has_parent_path() ? path_.parent_path() : fs::path(".");
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
  if (is_special(path_)) {
    if (const int problem = write_to_special(path_, text); problem != 0) throw_unwritable(problem);
    return;
  }
  if (const std::error_code problem = write_whole(path_, text)) throw_unwritable(problem.value());
}

}  // namespace ranvier::cli
