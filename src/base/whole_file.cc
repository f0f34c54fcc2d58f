#include "base/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>

#include "base/secret.h"

namespace ranvier {
namespace {

namespace fs = std::filesystem;

constexpr int most_links = 40;  // as the kernel

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

std::error_code write_whole(const fs::path& file, std::string_view text) {
  const fs::path part = part_beside(file);
  const int written = open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (written < 0) return last_problem();
  std::error_code problem = write_all(written, text);
  // A network's file system may say only now that the disk is full.
  if (close(written) != 0 && !problem) problem = last_problem();
  if (!problem) fs::rename(part, file, problem);
  std::error_code ignored;
  if (problem) fs::remove(part, ignored);
  return problem;
}

}  // namespace ranvier
