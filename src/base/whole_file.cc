#include "base/whole_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>

#include "base/secret.h"
#include "base/socket.h"

namespace ranvier {
namespace {

namespace fs = std::filesystem;

constexpr int most_links = 40;  // as the kernel
constexpr std::size_t piece = 64 << 10;

std::error_code last_problem() { return {errno, std::generic_category()}; }

// By chance, since processes of two containers may have one number.
fs::path part_beside(const fs::path& file) {
  std::array<std::byte, 8> random;
  fill_with_random(random);
  return file.string() + ".part-" + hex(random);
}

std::error_code write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno != EINTR) return last_problem();
    text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
  }
  return {};
}

// Not a folder's entry that another file may take: a shell's "> file" holds on to the file itself.
bool is_stdout(const fs::path& path) {
  struct stat named {};
  struct stat ours {};
  return stat(path.c_str(), &named) == 0 && fstat(STDOUT_FILENO, &ours) == 0 && named.st_dev == ours.st_dev &&
         named.st_ino == ours.st_ino;
}

// Behind what was printed.
std::error_code write_to_stdout(std::string_view text) {
  if (std::fflush(stdout) != 0) return last_problem();
  return write_all(STDOUT_FILENO, text);
}

bool is_special(const fs::path& path) {
  std::error_code ignored;
  const auto status = fs::status(path, ignored);
  return fs::exists(status) && !fs::is_regular_file(status);
}

// A pipe that nobody reads is refused instead of waited for.
std::error_code write_to_special(const fs::path& path, std::string_view text) {
  const Fd file(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file || fcntl(file.get(), F_SETFL, O_WRONLY) != 0) return last_problem();
  return write_all(file.get(), text);
}

}  // namespace

fs::path followed(fs::path path) {
  std::error_code problem;
  if (fs::path target = fs::canonical(path, problem); !problem) return target;
  for (int links = 0; fs::is_symlink(fs::symlink_status(path, problem)); ++links) {
    if (links == most_links) return {};
    path = path.parent_path() / fs::read_symlink(path, problem);
    if (problem) return {};
  }
  return path;
}

WholeFile read_whole(const fs::path& path, std::size_t most_bytes) {
  // Opening a pipe would wait for somebody who writes to it.
  const Fd file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat facts {};
  if (!file || fstat(file.get(), &facts) != 0) return {.problem = last_problem().message()};
  if (S_ISDIR(facts.st_mode)) return {.problem = "it is a folder"};
  if (!S_ISREG(facts.st_mode)) return {.problem = "it is no regular file"};
  std::string text;
  // Its size says nothing of one that grows, nor of those in /proc.
  for (std::size_t size = 0;;) {
    text.resize(size + piece);
    const ssize_t got = ::read(file.get(), text.data() + size, piece);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return {.problem = last_problem().message()};
    size += static_cast<std::size_t>(got);
    if (size > most_bytes) return {.problem = fmt::format("it is larger than {} MiB", most_bytes >> 20)};
    if (got > 0) continue;
    text.resize(size);
    return {.text = std::move(text)};
  }
}

std::error_code write_whole(const fs::path& file, std::string_view text, bool durably, mode_t mode) {
  const fs::path part = part_beside(file);
  // Without a name as long as it is not whole, so that nothing stays of a process that is killed; where the file system
  // knows no such files, with one.
  const fs::path folder = part.has_parent_path() ? part.parent_path() : fs::path(".");
  int written = open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
  const bool is_nameless = written >= 0;
  if (!is_nameless) written = open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (written < 0) return last_problem();
  std::error_code problem = write_all(written, text);
  if (durably && !problem && fsync(written) != 0) problem = last_problem();
  const std::string handle = fmt::format("/proc/self/fd/{}", written);
  if (is_nameless && !problem && linkat(AT_FDCWD, handle.c_str(), AT_FDCWD, part.c_str(), AT_SYMLINK_FOLLOW) != 0)
    problem = last_problem();
  // A network's file system may say only now that the disk is full.
  if (close(written) != 0 && !problem) problem = last_problem();
  if (!problem) fs::rename(part, file, problem);
  std::error_code ignored;
  if (problem) fs::remove(part, ignored);
  return problem;
}

std::error_code write_named(const fs::path& path, std::string_view text, bool durably) {
  if (is_stdout(path)) return write_to_stdout(text);
  const fs::path target = followed(path);
  if (target.empty()) return make_error_code(std::errc::too_many_symbolic_link_levels);
  return is_special(target) ? write_to_special(target, text) : write_whole(target, text, durably);
}

std::error_code check_named(const fs::path& path) {
  if (is_stdout(path)) return {};
  const fs::path target = followed(path);
  if (target.empty()) return make_error_code(std::errc::too_many_symbolic_link_levels);
  std::error_code ignored;
  if (fs::is_directory(target, ignored)) return make_error_code(std::errc::is_a_directory);
  if (is_special(target)) return access(target.c_str(), W_OK) == 0 ? std::error_code() : last_problem();
  // Tried: access() grants root what a file system such as /proc refuses.
  const fs::path part = part_beside(target);
  const Fd tried(open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!tried) return last_problem();
  unlink(part.c_str());
  return {};
}

}  // namespace ranvier
