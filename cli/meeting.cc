#include "meeting.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

#include "ranvier/error.h"
#include "ranvier/store.h"

namespace ranvier::cli {
namespace {

namespace fs = std::filesystem;

struct MeetingPlace {
  fs::path directory;
  bool ours = false;  // to remove
};

void remove(const MeetingPlace& meeting) {
  std::error_code ignored;
  fs::remove_all(meeting.directory, ignored);
}

MeetingPlace meeting_place(const WorldPlace& place) {
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
  return {fs::temp_directory_path() / name, true};
}

}  // namespace

std::unique_ptr<Communicator> meet(const WorldPlace& place, const CommunicatorOptions& options,
                                   const std::string& subject) {
  MeetingPlace meeting = meeting_place(place);
  // Beside a directory that goes with the meeting, since others may be at the next one by then.
  if (!subject.empty()) meeting.ours ? meeting.directory += "-" + subject : meeting.directory /= subject;
  const bool removes = meeting.ours && place.rank == 0;
  const auto store = file_store(meeting.directory);
  try {
    auto communicator = Communicator::connect(*store, place.rank, place.world, options);
    if (meeting.ours) communicator->barrier();  // nobody reads it any more
    if (removes) remove(meeting);
    return communicator;
  } catch (const Error& error) {
    // Of other errors the other ranks read the reason there.
    if (removes && error.kind() == ErrorKind::timeout) remove(meeting);
    throw;
  }
}

}  // namespace ranvier::cli
