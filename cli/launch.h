// Starting the workers of a job on this machine, and finding out which worker of which job this process is.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/store.h"
#include "ranvier/types.h"

namespace ranvier::cli {

struct Launch {
  int count = 1;
  std::vector<std::string> command;  // path of the program and its arguments; the same for every worker
  std::vector<std::pair<std::string, std::string>> environment = {};  // on top of what this process has
  // Where it is set, what the first workers do in place of running `command`: they are forked from this process, which
  // has loaded already what takes long to load. Returns what a worker exits with. Those that are started again run
  // `command`: others train meanwhile. So do all where this process has several threads, which cannot be forked safely.
  std::function<int()> work = {};
  // After the first failure the others have this long to notice (the control plane tells them, or, where they have not
  // met, a process in the place of the one that failed) and to say so.
  std::chrono::milliseconds grace = std::chrono::seconds(5);
  // Whoever is left so long after a signal has ended another one is ended as well: it still loads, or computes, and
  // does not hear of that.
  std::optional<std::chrono::milliseconds> time_to_notice = {};
  // How long a worker that was asked to end may take to do so before it is killed.
  std::chrono::milliseconds term_to_kill = std::chrono::seconds(1);
  // A worker that a signal has stopped for so long is ended, so that the others learn of it also where they have not
  // met yet and do not hear each other's heartbeats.
  std::chrono::milliseconds longest_stop = CommunicatorOptions{}.dead_after;
  // Of workers that call announce(): once all have come, those that are left are to go on without one that fails. They
  // are not ended, and what it ended with does not count where one of them calls announce_result().
  bool survive = false;
  // Of such workers: so often in all one that fails is started again, as long as others are left to be joined.
  int restarts = 0;
};

// Runs `count` processes that find in their environment who they are (RANVIER_RANK, RANVIER_WORLD, RANVIER_LOCAL_RANK,
// RANVIER_LOCAL_WORLD; RANVIER_RESTART, the number of the restart that it is, or 0) and where they meet
// (RANVIER_STORE: a temporary directory, removed before this returns). Those that are forked are called "ranvier #3" by
// ps and top, by their ranks. They share stdout and stderr with this process; SIGINT, SIGTERM and SIGHUP (but where that
// is ignored, as behind nohup) are passed on to them; none outlives the calling thread. Returns 0 when all succeed, else
// the exit code of the first that failed (1 where a signal ended it), or 128 + the signal that was passed on. Throws
// Error for a command that cannot be run; what goes wrong later it says on stderr.
int run_workers(const Launch&);

class TemporaryDirectory;

// The same without waiting: a process that does it, whose exit code is what run_workers would return. It ends the
// workers and removes their directory also where the calling thread dies, however it dies; where it is killed itself,
// status() removes it.
class Keeper {
 public:
  // `first` is called in that process. `mask`: the signals that workers block; null: those that this process does. Call
  // it while this process has one thread.
  explicit Keeper(const Launch&, const std::function<void()>& first = {}, const sigset_t* mask = nullptr);
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  std::optional<int> status();  // as waitpid gives it, once it has ended
  void tell(int signal) const;  // while it has not

 private:
  std::unique_ptr<TemporaryDirectory> store_;
  pid_t pid_ = -1;
  std::optional<int> status_;
};
int exit_code_of_keeper(int status);

// The path of the running program, for Launch::command.
std::string this_program();

// The place of this process in a job that something else started.
struct WorldPlace {
  std::string launcher;  // "ranvier", "torchrun", "mpirun" or "srun"
  Rank rank = 0;
  Rank world = 1;
  Rank local_rank = 0;  // among the processes of this host; local_world is at least 1
  Rank local_world = 1;
  int restart = 0;   // above 0: it has come in the place of a worker that had failed, as so many before it
  std::string node;  // CommunicatorOptions::node, from RANVIER_NODE

  // Where the ranks meet: a directory …
  std::filesystem::path store;
  bool owns_store = false;  // nobody else makes and removes the directory (meeting.h)
  // … or, where `store` is empty, torch's TCPStore at this address.
  std::string master_address;
  std::uint16_t master_port = 0;
  bool master_runs_elsewhere = false;  // torchrun's agent serves it; else rank 0 does
  std::string attempt;                 // tells the restarts of one torchrun job apart
};

// Says in the store where the workers of a Launch meet that this one of them has come.
void announce(Store&, const WorldPlace&);

// Says in the directory where the workers of a Launch met first that what they are for is done, and whether it is.
void announce_result(const std::filesystem::path& store);
bool has_result(const std::filesystem::path& store);
// Says there that nobody is left to be joined by whoever is started again: nobody is, from there on.
void announce_nobody_left(const std::filesystem::path& store);
bool has_nobody_left(const std::filesystem::path& store);

// Reads RANVIER_*, torchrun's, Open MPI's or Slurm's variables, in this order of preference. Nothing: this process
// stands alone. Throws Error{config} for an environment that is half set or contradicts itself.
using Lookup = std::function<const char*(const char* name)>;
std::optional<WorldPlace> world_from_environment(const Lookup& = {});

}  // namespace ranvier::cli
