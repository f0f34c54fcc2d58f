#include "programs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "base/socket.h"
#include "build_info.h"
#include "launch.h"
#include "ranvier/error.h"

namespace ranvier::cli {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

bool is_executable(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && access(path.c_str(), X_OK) == 0;
}

}  // namespace

std::optional<fs::path> beside_this_program(std::string_view name) {
  std::error_code ignored;
  const fs::path path = fs::path(this_program()).parent_path() / name;
  return fs::exists(path, ignored) ? std::optional(path) : std::nullopt;
}

std::optional<fs::path> find_program(const std::string& name) {
  if (name.find('/') != std::string::npos)
    return is_executable(name) ? std::optional(fs::absolute(name)) : std::nullopt;
  const char* variable = std::getenv("PATH");
  for (std::string_view left = variable == nullptr ? "/usr/bin:/bin" : variable; !left.empty();) {
    const std::size_t end = std::min(left.find(':'), left.size());
    if (const fs::path path = fs::path(left.substr(0, end)) / name; is_executable(path)) return path;
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return std::nullopt;
}

std::optional<fs::path> find_python(const std::string& named) {
  if (!named.empty()) return find_program(named);
  if (const char* variable = std::getenv("RANVIER_PYTHON"); variable != nullptr) return find_program(variable);
  if (auto python = find_program(std::string(build_python)); python && !build_python.empty()) return python;
  return find_program("python3");
}

std::optional<Answer> ask(const std::vector<std::string>& command, std::chrono::milliseconds limit) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return std::nullopt;
  const Fd reading(ends[0]);
  Fd writing(ends[1]);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, writing.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<std::string> words = command;
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int problem = posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  writing.reset();
  if (problem != 0) return std::nullopt;

  Answer answer;
  const auto until = steady_clock::now() + limit;
  bool ended = false;
  while (!ended) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - steady_clock::now());
    pollfd waiting{reading.get(), POLLIN, 0};
    if (left.count() <= 0 || poll(&waiting, 1, static_cast<int>(left.count())) <= 0) break;
    std::array<char, 4096> part;
    const auto got = read(reading.get(), part.data(), part.size());
    ended = got <= 0;
    if (!ended) answer.output.append(part.data(), static_cast<std::size_t>(got));
  }
  if (!ended) kill(pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  if (!ended) return std::nullopt;
  answer.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return answer;
}

void become(std::vector<std::string> command) {
  std::vector<char*> argv;
  for (auto& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  throw Error(ErrorKind::config, fmt::format("cannot run {}: {}", command[0], std::strerror(errno)));
}

}  // namespace ranvier::cli
