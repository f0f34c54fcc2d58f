#include "engine/tuning_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <chrono>
#include <string>
#include <system_error>
#include <utility>

#include "base/file_lock.h"
#include "base/whole_file.h"
#include "engine/tuning_text.h"
#include "ranvier/error.h"

namespace ranvier::engine {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& file) {
  std::error_code problem;
  const bool there = fs::exists(file, problem);
  if (problem)
    throw Error(ErrorKind::config, fmt::format("cannot look for the tuning table {} ({}); let this user into its "
                                               "folder, or name another file",
                                               file.string(), problem.message()));
  return there;
}

[[noreturn]] void refuse_to_write(const fs::path& file, const std::error_code& why) {
  throw Error(ErrorKind::config, fmt::format("cannot write the tuning table {} ({}); make its folder writable, or name "
                                             "another file",
                                             file.string(), why.message()));
}

// A lock on the folder, since the file itself is replaced by another one, and one beside it would stay there. Where the
// file system has none for folders, or somebody holds it for long, there is none: what two then write at once is
// whole, but one of them is lost.
Fd lock_folder_of(const fs::path& file) {
  using namespace std::chrono_literals;
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  Fd lock(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock) lock_until(lock, LOCK_EX, std::chrono::steady_clock::now() + 1s);
  return lock;
}

}  // namespace

TuningTable read_to_complete(const fs::path& file) {
  if (const std::error_code problem = check_named(file)) refuse_to_write(file, problem);
  return TuningTable::parse(text_if_there(file), file.string());
}

std::string tuning_text(const fs::path& file) {
  WholeFile read = read_whole(file);
  if (!read.problem.empty())
    throw Error(ErrorKind::config,
                fmt::format("cannot read the tuning table {} ({}); 'ranvier bench --tune' writes one", file.string(),
                            read.problem));
  return std::move(read.text);
}

std::string text_if_there(const fs::path& file) { return is_there(file) ? tuning_text(file) : ""; }

void complete(const fs::path& file, const std::function<RowsByKind(const TuningTable&)>& rows) {
  const fs::path target = followed(file);
  if (target.empty()) refuse_to_write(file, std::make_error_code(std::errc::too_many_symbolic_link_levels));
  const Fd lock = lock_folder_of(target);
  std::string text = text_if_there(target);
  const RowsByKind all = rows(TuningTable::parse(text, target.string()));
  if (all.empty()) return;
  for (const std::vector<TuningRow>& kind : all) text = with_rows(text, kind);
  if (const std::error_code problem = write_whole(target, text)) refuse_to_write(file, problem);
}

}  // namespace ranvier::engine
