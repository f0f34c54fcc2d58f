// How a process of a world that something else started meets the others, without torch.
#pragma once

#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/socket.h"
#include "launch.h"
#include "ranvier/communicator.h"
#include "ranvier/store.h"

namespace ranvier::cli {

// A folder that ranks of one host make for their meeting, since nobody else does. The last of them to leave removes it,
// however the meeting went and whoever of them died; where they all die at once it stays.
class MeetingFolder {
 public:
  // Throws Error{config} where there is something of that name which others could read or write: the job's token will
  // lie in there.
  explicit MeetingFolder(std::filesystem::path);
  ~MeetingFolder();
  MeetingFolder(const MeetingFolder&) = delete;
  MeetingFolder& operator=(const MeetingFolder&) = delete;

 private:
  std::filesystem::path path_;
  Fd entered_;  // locked, with all who are inside
};

// The store in which the ranks of a world meet: in place.store; those that torchrun started on one host, in a directory
// of their own instead.
class Meeting {
 public:
  // Throws Error{config} where hosts have no directory that the place names. `subject`: of a world that meets several
  // times, a name for each.
  explicit Meeting(const WorldPlace&, const std::string& subject = {});
  Store& store() const { return *store_; }
  // That somebody has named; empty where they meet in one of their own.
  const std::filesystem::path& named() const { return named_; }

 private:
  std::optional<MeetingFolder> own_;
  std::filesystem::path named_;
  std::unique_ptr<Store> store_;
};

std::unique_ptr<Communicator> meet(const WorldPlace&, const CommunicatorOptions&, const std::string& subject = {});

// Of a rank whose words or settings cannot be followed: says why, and then tells the others, who would wait for it, by
// `tell_others`; of a process that stands alone nothing is told. Returns the exit code.
int refuse_to_meet(std::string_view speaker, const std::exception& why,
                   const std::function<void(const WorldPlace&)>& tell_others);
// Instead of meeting: the others know why, once they have come.
void decline(const WorldPlace&, const std::exception& why);
// Of `flag`, which starts processes, for one that a launcher has started already.
[[noreturn]] void refuse_to_start(std::string_view flag, const WorldPlace&);

}  // namespace ranvier::cli
