#include "meeting.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string_view>
#include <utility>

#include "base/file_lock.h"
#include "output.h"
#include "ranvier/error.h"
#include "temporary.h"

namespace ranvier::cli {
namespace {

namespace fs = std::filesystem;

struct Place {
  fs::path directory;
  bool ours = false;  // to make and to remove
};

Place place_of(const WorldPlace& place) {
  if (!place.store.empty()) return {place.store, place.owns_store};
  if (const char* named = std::getenv("RANVIER_STORE"); named != nullptr) return {named, false};
  if (place.local_world != place.world)
    throw Error(ErrorKind::config,
                fmt::format("{} started ranks on several hosts, which meet in a directory that all of "
                            "them see: name one in RANVIER_STORE",
                            place.launcher));
  // The launcher's agent is the parent of all ranks of a host; its process id tells two jobs of one port apart.
  const auto name = fmt::format("ranvier-{}-{}-{}-{:x}", getuid(), getppid(), place.master_port,
                                std::hash<std::string>{}(place.attempt));
  return {temporary_folder() / name, true};
}

[[noreturn]] void refuse_folder(const fs::path& folder, std::string_view problem) {
  throw Error(ErrorKind::config, fmt::format("cannot meet in {}: {}; remove it, or set TMPDIR to another directory on "
                                             "all ranks",
                                             folder.string(), problem));
}

// The folder with its lock; none if it was removed meanwhile.
Fd try_to_enter(const fs::path& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) refuse_folder(folder, std::strerror(errno));
  Fd entered(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!entered && errno == ENOENT) return {};
  struct stat facts {};
  if (!entered || fstat(entered.get(), &facts) != 0) refuse_folder(folder, std::strerror(errno));
  if (facts.st_uid != geteuid()) refuse_folder(folder, fmt::format("it belongs to user {}", facts.st_uid));
  if ((facts.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    refuse_folder(folder, fmt::format("others may look into it or write there (mode {:o})", facts.st_mode & 07777));
  // Held for as long as it takes the last of a meeting to remove the folder.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  if (const auto problem = lock_until(entered, LOCK_SH, deadline))
    refuse_folder(folder, problem == std::errc::timed_out ? "another process has held it for 30 s" : problem.message());
  struct stat named {};
  const bool is_there =
      lstat(folder.c_str(), &named) == 0 && named.st_dev == facts.st_dev && named.st_ino == facts.st_ino;
  return is_there ? std::move(entered) : Fd();
}

}  // namespace

MeetingFolder::MeetingFolder(fs::path path) : path_(std::move(path)) {
  while (!entered_) entered_ = try_to_enter(path_);
}

MeetingFolder::~MeetingFolder() {
  // Whoever else is inside holds the lock as well. Of several who try at once the kernel lets the last one have it,
  // since each gives up its own first.
  if (flock(entered_.get(), LOCK_EX | LOCK_NB) != 0) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

Meeting::Meeting(const WorldPlace& place, const std::string& subject) {
  Place at = place_of(place);
  // Beside a directory that goes with the meeting, since others may be at the next one by then.
  if (!subject.empty()) at.ours ? at.directory += "-" + subject : at.directory /= subject;
  if (at.ours)
    own_.emplace(at.directory);
  else
    named_ = at.directory;
  store_ = file_store(at.directory);
}

std::unique_ptr<Communicator> meet(const WorldPlace& place, const CommunicatorOptions& options,
                                   const std::string& subject) {
  const Meeting meeting(place, subject);
  try {
    return Communicator::connect(meeting.store(), place.rank, place.world, options);
  } catch (const Error& late) {
    // Where it was misspelt each rank has made one for itself, and waits there alone.
    if (late.kind() != ErrorKind::timeout || meeting.named().empty()) throw;
    throw Error(
        late.kind(),
        fmt::format("{}; they meet in {}, which all of them have to see", late.what(), meeting.named().string()),
        late.culprit());
  }
}

int refuse_to_meet(std::string_view speaker, const std::exception& why,
                   const std::function<void(const WorldPlace&)>& tell_others) {
  std::optional<WorldPlace> place;
  try {
    place = world_from_environment();
  } catch (const Error&) {  // nobody knows where the others are
  }
  const int code = fail(place ? fmt::format("{}, rank {}", speaker, place->rank) : std::string(speaker), why);
  if (place && place->world > 1) tell_others(*place);
  return code;
}

void refuse_to_start(std::string_view flag, const WorldPlace& place) {
  throw Error(ErrorKind::usage,
              fmt::format("{} starts processes, and {} has started this one already as rank {} of {}; leave it out",
                          flag, place.launcher, place.rank, place.world));
}

void decline(const WorldPlace& place, const std::exception& why) {
  try {
    const Meeting meeting(place);
    Communicator::decline(meeting.store(), place.rank, place.world, why);
  } catch (const std::exception&) {  // nobody is there who could be told
  }
}

}  // namespace ranvier::cli
