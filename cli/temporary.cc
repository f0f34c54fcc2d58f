#include "temporary.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>
#include <system_error>

#include "ranvier/error.h"

namespace ranvier::cli {

std::filesystem::path temporary_folder() {
  const char* const named = std::getenv("TMPDIR");
  std::filesystem::path folder = named == nullptr || std::string_view(named).empty() ? "/tmp" : named;
  std::error_code problem;
  if (std::filesystem::is_directory(folder, problem)) return folder;
  throw Error(ErrorKind::config,
              fmt::format("temporary files cannot go to {} ({}); set TMPDIR to a folder that can be written",
                          folder.string(), problem ? problem.message() : "it is no folder"));
}

}  // namespace ranvier::cli
