#include "launch.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <system_error>
#include <thread>

#include "output.h"
#include "ranvier/error.h"
#include "ranvier/store.h"
#include "temporary.h"

namespace ranvier::cli {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (temporary_folder() / "ranvier-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr)
      throw Error(ErrorKind::config, fmt::format("cannot create {}: {}; set TMPDIR to a directory that can be written",
                                                 name, std::strerror(errno)));
    path_ = name;
  }
  // Whoever was killed with the keeper may just have put something there.
  ~TemporaryDirectory() {
    const auto until = steady_clock::now() + std::chrono::seconds(1);
    for (std::error_code problem; fs::remove_all(path_, problem), problem && steady_clock::now() < until;)
      std::this_thread::sleep_for(milliseconds(5));
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

namespace {

// Blocks the signals that run_workers waits for, so that none is missed between two waits. SIGCHLD must not be ignored
// meanwhile (some callers' parents leave it so): exit statuses would be thrown away.
class CaughtSignals {
 public:
  CaughtSignals() {
    sigemptyset(&set_);
    for (const int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&set_, signal);
    struct sigaction hang_up {};
    sigaction(SIGHUP, nullptr, &hang_up);
    if (hang_up.sa_handler != SIG_IGN) sigaddset(&set_, SIGHUP);  // nohup: blocked ones would come none the less
    sigprocmask(SIG_BLOCK, &set_, &before_);
    struct sigaction child {};
    child.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &child, &child_before_);
  }
  ~CaughtSignals() {
    sigaction(SIGCHLD, &child_before_, nullptr);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  CaughtSignals(const CaughtSignals&) = delete;
  CaughtSignals& operator=(const CaughtSignals&) = delete;

  // The next signal; none after `limit`.
  std::optional<siginfo_t> wait(milliseconds limit) const {
    const timespec time{limit.count() / 1000, limit.count() % 1000 * 1'000'000};
    siginfo_t info{};
    if (sigtimedwait(&set_, &info, &time) < 0) return std::nullopt;
    return info;
  }
  const sigset_t& before() const { return before_; }

 private:
  sigset_t set_{};
  sigset_t before_{};
  struct sigaction child_before_ {};
};

// argv or envp: made before fork(), for between fork() and exec() nothing may be allocated.
class Strings {
 public:
  explicit Strings(std::vector<std::string> words) : words_(std::move(words)) {
    for (auto& word : words_) pointers_.push_back(word.data());
    pointers_.push_back(nullptr);
  }
  char* const* data() const { return pointers_.data(); }

 private:
  std::vector<std::string> words_;
  std::vector<char*> pointers_;
};

using Variables = std::vector<std::pair<std::string, std::string>>;

// By which a worker finds its place.
Variables variables_of(const Launch& launch, int rank, int restart, const fs::path& store) {
  Variables added = launch.environment;
  added.insert(added.end(), {{"RANVIER_RANK", std::to_string(rank)},
                             {"RANVIER_WORLD", std::to_string(launch.count)},
                             {"RANVIER_LOCAL_RANK", std::to_string(rank)},
                             {"RANVIER_LOCAL_WORLD", std::to_string(launch.count)},
                             {"RANVIER_RESTART", std::to_string(restart)},
                             {"RANVIER_STORE", store.string()}});
  return added;
}

Strings environment_with(const Variables& added) {
  std::vector<std::string> words;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view word = *entry;
    const auto name = word.substr(0, word.find('='));
    if (std::none_of(added.begin(), added.end(), [&](const auto& pair) { return pair.first == name; }))
      words.emplace_back(word);
  }
  for (const auto& [name, value] : added) words.push_back(name + "=" + value);
  return Strings(std::move(words));
}

std::string arrival_of(std::size_t rank) { return fmt::format("come/{}", rank); }

constexpr const char* result_key = "result";
constexpr const char* nobody_left_key = "nobody-left";

bool has(Store& store, const std::string& key) {
  try {
    store.get(key, milliseconds(0));
    return true;
  } catch (const Error&) {
    return false;
  }
}

struct Worker {
  pid_t pid = -1;
  std::optional<int> status;                              // as waitpid gives it, once it has ended
  std::optional<steady_clock::time_point> stopped_since;  // by a signal; it will not answer to one that asks it to end
  std::string ended_for;                                  // why we have ended it; empty: we have not
};

// Of several, a process that is forked has one, and the locks that the others held stay locked there.
bool has_one_thread() {
  std::error_code problem;
  const fs::directory_iterator threads("/proc/self/task", problem);
  return !problem && std::distance(begin(threads), end(threads)) == 1;
}

// In a process that was forked for it. What is thrown here must not reach what cleans up after all workers.
[[noreturn]] void work_as(int rank, const Launch& launch, const Variables& variables) noexcept {
  prctl(PR_SET_NAME, fmt::format("ranvier #{}", rank).c_str());
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  std::exit(launch.work());
}

class Workers {
 public:
  Workers() = default;
  ~Workers() {  // only after an exception is anybody left
    tell(SIGKILL);
    for (auto& worker : workers_)
      if (!worker.status) waitpid(worker.pid, nullptr, 0);
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // `restart`: its number; 0 where nobody was in this place before.
  void start(const Launch& launch, int rank, int restart, const fs::path& store, const sigset_t& mask) {
    const Strings argv(launch.command);
    const Variables variables = variables_of(launch, rank, restart, store);
    const Strings envp = environment_with(variables);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0)
      throw Error(ErrorKind::config, fmt::format("cannot start worker {} of {}: {}; allow more processes (ulimit -u)",
                                                 rank, launch.count, std::strerror(errno)));
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);  // it died before the line above
      sigprocmask(SIG_SETMASK, &mask, nullptr);
      if (launch.work && restart == 0) work_as(rank, launch, variables);
      execve(argv.data()[0], argv.data(), envp.data());
      _exit(127);
    }
    workers_.resize(std::max(workers_.size(), static_cast<std::size_t>(rank) + 1));
    workers_[static_cast<std::size_t>(rank)] = {.pid = pid, .status = {}, .stopped_since = {}, .ended_for = {}};
  }

  void tell(int signal) const {
    for (const auto& worker : workers_)
      if (!worker.status) kill(worker.pid, signal);
  }

  // Takes note of those who have ended; returns the ranks whose failure is new. Who was ended by a signal comes first:
  // who exits may have heard of it.
  std::vector<std::size_t> reap() {
    std::vector<std::size_t> failed;
    for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
      auto& worker = workers_[rank];
      int status = 0;
      if (worker.status || waitpid(worker.pid, &status, WNOHANG | WUNTRACED | WCONTINUED) != worker.pid) continue;
      worker.stopped_since.reset();
      if (WIFSTOPPED(status)) worker.stopped_since = steady_clock::now();
      if (WIFSTOPPED(status) || WIFCONTINUED(status)) continue;
      worker.status = status;
      if (status != 0) failed.push_back(rank);
    }
    std::ranges::stable_partition(failed, [&](std::size_t rank) { return WIFSIGNALED(*workers_[rank].status); });
    return failed;
  }

  // Those who have been stopped for so long. Returns how long the next one has left.
  milliseconds kill_stopped(milliseconds longest) {
    auto left = milliseconds::max();
    for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
      Worker& worker = workers_[rank];
      if (worker.status || !worker.stopped_since) continue;
      const auto rest = *worker.stopped_since + longest - steady_clock::now();
      if (rest > milliseconds(0)) {
        left = std::min(left, std::chrono::ceil<milliseconds>(rest));
        continue;
      }
      say(fmt::format("ranvier: worker {} (process {}) is stopped, and is ended\n", rank, worker.pid));
      kill(worker.pid, SIGKILL);
      worker.stopped_since.reset();
      worker.ended_for = "was stopped, and ended for that";
    }
    return left;
  }

  // Those who are left, for `why`.
  void end_others(const std::string& why) {
    for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
      Worker& worker = workers_[rank];
      if (worker.status || !worker.ended_for.empty()) continue;
      worker.ended_for = "was ended as well: " + why;
      say(fmt::format("ranvier: worker {} (process {}) is ended: {}\n", rank, worker.pid, why));
      kill(worker.pid, SIGTERM);
    }
  }

  bool all_ended() const {
    return std::all_of(workers_.begin(), workers_.end(),
                       [](const Worker& worker) { return worker.status.has_value(); });
  }
  bool all_have_come(const fs::path& place) const {
    const auto store = file_store(place);
    for (std::size_t rank = 0; rank < workers_.size(); ++rank)
      if (!has(*store, arrival_of(rank))) return false;
    return true;
  }
  const Worker& operator[](std::size_t rank) const { return workers_[rank]; }

 private:
  std::vector<Worker> workers_;
};

std::string how_it_ended(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("has ended with exit code {}", WEXITSTATUS(status));
  return fmt::format("was ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
}

std::string how_it_ended(const Worker& worker) {
  return worker.ended_for.empty() ? how_it_ended(*worker.status) : worker.ended_for;
}

// Where ranks that have not met wait for one that has ended, they wait for long. A process in its place tells them.
class StandIns {
 public:
  StandIns() = default;
  ~StandIns() {
    for (const pid_t pid : pids_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }
  StandIns(const StandIns&) = delete;
  StandIns& operator=(const StandIns&) = delete;

  // `how`: "was ended by signal 9", of a rank.
  void stand_in(const Launch& launch, std::size_t rank, const std::string& how, const fs::path& store) {
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid > 0) pids_.push_back(pid);
    if (pid != 0) return;  // without one, they are ended when the time for grace is over
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    const auto place = file_store(store);
    Communicator::decline(*place, static_cast<Rank>(rank), launch.count, Error(ErrorKind::unreachable, "it " + how),
                          {.join_timeout = launch.grace});
    _exit(0);
  }

 private:
  std::vector<pid_t> pids_;
};

int exit_code(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 1; }

// A worker that exits says itself why; of one that a signal ended nobody else does.
void report_signal(std::size_t rank, const Worker& worker) {
  if (!WIFSIGNALED(*worker.status)) return;
  say(fmt::format("ranvier: worker {} (process {}) {}\n", rank, worker.pid, how_it_ended(*worker.status)));
}

// In the place of one that has ended. The others go on also where that cannot be.
void start_again(Workers& workers, const Launch& launch, std::size_t rank, int restart, const fs::path& store,
                 const sigset_t& mask) {
  try {
    workers.start(launch, static_cast<int>(rank), restart, store, mask);
    say(fmt::format("ranvier: worker {} is started again (process {}), restart {} of {}\n", rank, workers[rank].pid,
                    restart, launch.restarts));
  } catch (const Error& problem) {
    say(fmt::format("ranvier: {}\n", words_of(problem)));
  }
}

// Starts the workers and sees them to their end.
int keep(const Launch& launch, const CaughtSignals& signals, const sigset_t& mask, const fs::path& store) {
  StandIns stand_ins;
  Workers workers;
  for (int rank = 0; rank < launch.count; ++rank) workers.start(launch, rank, 0, store, mask);

  int code = 0;
  bool ending = false;  // the workers were told to end: that they do is no news
  int next_signal = 0;  // what those who are left get at `deadline`
  steady_clock::time_point deadline;
  auto latest_to_notice = steady_clock::time_point::max();  // for who has not noticed `first`
  std::string first;  // failure, if nobody is to survive it: who exits after that has heard of it
  int restarts = 0;
  const auto give = [&](milliseconds time, int signal) {
    deadline = steady_clock::now() + time;
    next_signal = signal;
  };

  for (;;) {
    for (const auto rank : workers.reap()) {
      if (!ending && workers[rank].ended_for.empty()) report_signal(rank, workers[rank]);
      const std::string how = how_it_ended(workers[rank]);
      const bool exited = WIFEXITED(*workers[rank].status) && workers[rank].ended_for.empty();
      if (!ending)
        stand_ins.stand_in(launch, rank, exited && !first.empty() ? "has ended as well: " + first : how, store);
      const bool is_first = code == 0;
      if (is_first) code = exit_code(*workers[rank].status);
      if (launch.survive && first.empty() && workers.all_have_come(store)) {
        const bool is_of_no_use = ending || workers.all_ended() || has_result(store) || has_nobody_left(store);
        if (!is_of_no_use && restarts < launch.restarts) start_again(workers, launch, rank, ++restarts, store, mask);
        continue;
      }
      if (is_first) {
        first = fmt::format("rank {} {}", rank, how);
        give(launch.grace, SIGTERM);
        if (launch.time_to_notice && WIFSIGNALED(*workers[rank].status))
          latest_to_notice = steady_clock::now() + *launch.time_to_notice;
      }
    }
    if (workers.all_ended()) return launch.survive && !ending && has_result(store) ? 0 : code;
    const bool is_over = next_signal != 0;
    const auto until_stopped = workers.kill_stopped(is_over ? milliseconds(0) : launch.longest_stop);
    if (steady_clock::now() >= latest_to_notice) {
      if (!ending) workers.end_others(first);
      latest_to_notice = steady_clock::time_point::max();
    }
    if (next_signal != 0 && steady_clock::now() >= deadline) {
      ending = true;
      workers.tell(next_signal);
      give(launch.term_to_kill, SIGKILL);
    }

    const auto until = [](steady_clock::time_point time) {
      return std::chrono::ceil<milliseconds>(time - steady_clock::now());
    };
    auto left = next_signal == 0 ? milliseconds(1000) : until(deadline);
    left = std::min(left, until(latest_to_notice));
    const auto arrived = signals.wait(std::max(std::min(left, until_stopped), milliseconds(1)));
    if (!arrived || arrived->si_signo == SIGCHLD) continue;
    // What a terminal sends (Ctrl-C) reaches the whole process group, the workers too; what a process sends does not.
    if (arrived->si_code != SI_KERNEL) workers.tell(arrived->si_signo);
    ending = true;
    code = 128 + arrived->si_signo;
    give(launch.term_to_kill, next_signal == 0 ? SIGTERM : SIGKILL);
  }
}

void check(const Launch& launch) {
  if (launch.count < 1 || launch.command.empty())
    throw Error(ErrorKind::usage, fmt::format("cannot start {} workers; start at least 1", launch.count));
  if (access(launch.command.front().c_str(), X_OK) != 0)
    throw Error(ErrorKind::config, fmt::format("cannot run {}: {}", launch.command.front(), std::strerror(errno)));
}

}  // namespace

// By its number among those who were started: a plan may make it another rank.
void announce(Store& store, const WorldPlace& place) {
  store.set(arrival_of(static_cast<std::size_t>(place.local_rank)), "here");
}

void announce_result(const fs::path& store) { file_store(store)->set(result_key, "reported"); }

bool has_result(const fs::path& store) { return has(*file_store(store), result_key); }

void announce_nobody_left(const fs::path& store) { file_store(store)->set(nobody_left_key, "ended"); }

bool has_nobody_left(const fs::path& store) { return has(*file_store(store), nobody_left_key); }

Keeper::Keeper(const Launch& launch, const std::function<void()>& first, const sigset_t* mask) {
  check(launch);
  std::fflush(nullptr);
  Launch safe = launch;
  if (!has_one_thread()) safe.work = nullptr;
  const CaughtSignals signals;  // for longer than there is a directory: a late one must not end us before it is removed
  store_ = std::make_unique<TemporaryDirectory>();
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0)
    throw Error(ErrorKind::config, fmt::format("cannot start {} workers: {}; allow more processes (ulimit -u)",
                                               launch.count, std::strerror(errno)));
  if (pid_ > 0) return;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  int code = 1;
  if (getppid() == parent) try {
      if (first) first();
      code = keep(safe, signals, mask == nullptr ? signals.before() : *mask, store_->path());
    } catch (const std::exception& problem) {
      say(fmt::format("ranvier: {}\n", words_of(problem)));
    }
  store_.reset();
  std::fflush(nullptr);
  _exit(code);
}

Keeper::~Keeper() = default;

std::optional<int> Keeper::status() {
  int status = 0;
  if (!status_ && waitpid(pid_, &status, WNOHANG) == pid_) {
    status_ = status;
    store_.reset();
  }
  return status_;
}

void Keeper::tell(int signal) const {
  if (!status_) kill(pid_, signal);
}

int exit_code_of_keeper(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

int run_workers(const Launch& launch) {
  const CaughtSignals signals;
  Keeper keeper(launch, {}, &signals.before());
  for (;;) {
    if (const auto status = keeper.status()) {
      if (WIFSIGNALED(*status))
        say(fmt::format("ranvier: the process that kept the workers {}, and they with it\n", how_it_ended(*status)));
      return exit_code_of_keeper(*status);
    }
    const auto arrived = signals.wait(milliseconds(1000));
    // What a terminal sends reaches the keeper as well, but for a hang-up, which goes to the session's leader only.
    const bool is_news = arrived && arrived->si_signo != SIGCHLD;
    if (is_news && (arrived->si_code != SI_KERNEL || arrived->si_signo == SIGHUP)) keeper.tell(arrived->si_signo);
  }
}

std::string this_program() {
  std::error_code problem;
  const auto path = fs::read_symlink("/proc/self/exe", problem);
  if (problem)
    throw Error(ErrorKind::config,
                fmt::format("cannot read /proc/self/exe ({}); is /proc mounted?", problem.message()));
  return path.string();
}

}  // namespace ranvier::cli
