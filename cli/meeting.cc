#include "meeting.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <utility>

#include "ranvier/error.h"
#include "ranvier/store.h"

namespace ranvier::cli {
namespace {

namespace fs = std::filesystem;

struct MeetingPlace {
  fs::path directory;
  bool ours = false;  // to remove
};

// Rank 0's, whether the ranks have met or not.
class Removed {
 public:
  explicit Removed(fs::path directory) : directory_(std::move(directory)) {}
  ~Removed() {
    std::error_code ignored;
    if (!directory_.empty()) fs::remove_all(directory_, ignored);
  }
  Removed(const Removed&) = delete;
  Removed& operator=(const Removed&) = delete;

 private:
  const fs::path directory_;
};

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

std::unique_ptr<Communicator> meet(const WorldPlace& place, const CommunicatorOptions& options) {
  const MeetingPlace meeting = meeting_place(place);
  const Removed at_the_end(meeting.ours && place.rank == 0 ? meeting.directory : fs::path());
  const auto store = file_store(meeting.directory);
  auto communicator = Communicator::connect(*store, place.rank, place.world, options);
  if (meeting.ours) communicator->barrier();  // nobody reads it any more
  return communicator;
}

}  // namespace ranvier::cli
