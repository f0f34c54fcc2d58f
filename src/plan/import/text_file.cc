#include "plan/import/text_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "ranvier/error.h"

namespace ranvier::plan {

std::string read_text(const std::filesystem::path& path) {
  constexpr std::uintmax_t most_bytes = std::uintmax_t{64} << 20;
  const auto refuse = [&](std::string_view why) {
    throw Error(ErrorKind::config, fmt::format("cannot read {} ({}); name a file that is there", path.string(), why));
  };
  std::error_code problem;
  if (std::filesystem::is_directory(path, problem)) refuse("it is a folder");
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse(std::strerror(errno));
  if (std::filesystem::is_regular_file(path, problem) && std::filesystem::file_size(path, problem) > most_bytes)
    refuse("it is larger than 64 MiB");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TextPlace place_of(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const std::size_t start = before.rfind('\n');
  return {.line = 1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n')),
          .column = start == std::string_view::npos ? before.size() + 1 : before.size() - start};
}

}  // namespace ranvier::plan
