#include "package.h"

#include <fmt/format.h>

#include <fstream>
#include <optional>

#include "build_info.h"
#include "launch.h"
#include "programs.h"
#include "ranvier/error.h"

namespace ranvier::cli {
namespace {

namespace fs = std::filesystem;

fs::path package() { return fs::path(this_program()).parent_path().parent_path(); }

}  // namespace

bool is_in_package() {
  std::error_code ignored;
  return fs::exists(package() / "_rebuild.py", ignored);
}

std::string torch_beside_package() {
  if (!is_in_package()) return "";
  std::ifstream file(package().parent_path() / "torch" / "version.py");
  for (std::string line; std::getline(file, line);) {
    constexpr std::string_view key = "__version__ = '";
    if (line.starts_with(key)) return line.substr(key.size(), line.find('\'', key.size()) - key.size());
  }
  return "";
}

std::string minor_version(std::string_view version) {
  return std::string(version.substr(0, version.find('.', version.find('.') + 1)));
}

void demand_torch_of_trainer() {
  const std::string found = torch_beside_package(), built(build_torch_version);
  if (!found.empty() && minor_version(found) != minor_version(built))
    throw Error(ErrorKind::config,
                fmt::format("ranvier-train was built for torch {}, and torch {} is installed beside it: install "
                            "torch=={}, or ranvier again from its sources (pip install .)",
                            minor_version(built), minor_version(found), built));
}

int run_rebuild(const Arguments& arguments) {
  const auto python = find_python();
  if (!python) throw Error(ErrorKind::config, "no Python was found: name the one that has ranvier in RANVIER_PYTHON");
  Arguments words{python->string(), "-m", "ranvier", "rebuild"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  become(std::move(words));
}

}  // namespace ranvier::cli
