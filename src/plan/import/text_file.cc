#include "plan/import/text_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/whole_file.h"
#include "plan/import/gzip.h"
#include "ranvier/error.h"

namespace ranvier::plan {

std::string read_text(const std::filesystem::path& path, std::size_t most_bytes) {
  WholeFile file = read_whole(path, most_bytes);
  if (!file.problem.empty())
    throw Error(ErrorKind::config,
                fmt::format("cannot read {} ({}); name a file that is there", path.string(), file.problem));
  if (!is_gzipped(file.text)) return std::move(file.text);
  Unpacked unpacked = gunzip(file.text, most_bytes);
  if (!unpacked.problem.empty())
    throw Error(ErrorKind::config, fmt::format("cannot read {}: {}", path.string(), unpacked.problem));
  return std::move(unpacked.text);
}

std::string quotable(std::string_view text, std::size_t most_letters) {
  constexpr std::size_t most_bytes_of_a_letter = 4;
  std::string quoted;
  std::size_t letters = 0;
  for (const char next : text) {
    const auto byte = static_cast<unsigned char>(next);
    const bool begins = (byte & 0xc0) != 0x80;
    // What is no UTF-8 may begin no letter at all.
    if ((begins && letters++ == most_letters) || quoted.size() == most_bytes_of_a_letter * most_letters)
      return quoted + "…";
    quoted += byte < 0x20 || byte == 0x7f ? '?' : next;
  }
  return quoted;
}

TextPlace place_of(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const std::size_t start = before.rfind('\n');
  return {.line = 1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n')),
          .column = start == std::string_view::npos ? before.size() + 1 : before.size() - start};
}

}  // namespace ranvier::plan
