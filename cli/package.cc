#include "package.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <system_error>

#include "build_info.h"
#include "launch.h"
#include "programs.h"
#include "ranvier/error.h"

namespace ranvier::cli {
namespace {

namespace fs = std::filesystem;

using namespace std::chrono_literals;

fs::path package() { return fs::path(this_program()).parent_path().parent_path(); }

// Of the torch that is in this folder; empty where none is.
std::string version_of_torch(const fs::path& torch) {
  std::ifstream file(torch / "version.py");
  for (std::string line; std::getline(file, line);) {
    constexpr std::string_view key = "__version__ = '";
    if (line.starts_with(key)) return line.substr(key.size(), line.find('\'', key.size()) - key.size());
  }
  return "";
}

// Importing torch would take seconds. A folder of that name where the user stands is not meant.
constexpr auto where_torch_is = R"(
import importlib.util, os, sys
sys.path = [folder for folder in sys.path if folder]
torch = importlib.util.find_spec("torch")
if torch and torch.submodule_search_locations:
    sys.stdout.buffer.write(os.fsencode(torch.submodule_search_locations[0]))
)";

// The folder of the torch that this Python would import; empty where it has none.
fs::path torch_of(const fs::path& python) {
  const auto answer = ask({python.string(), "-c", where_torch_is}, 30s);
  return answer && answer->exit_code == 0 ? fs::path(answer->output) : fs::path();
}

// As where somebody has put torch's libraries where the loader looks.
bool trainer_starts_as_it_is() {
  const auto trainer = beside_this_program("ranvier-train");
  const auto answer = trainer ? ask({trainer->string(), "--help"}, 60s) : std::nullopt;
  return answer && answer->exit_code == 0;
}

}  // namespace

bool is_in_package() {
  std::error_code ignored;
  return fs::exists(package() / "_rebuild.py", ignored);
}

std::string minor_version(std::string_view version) {
  return std::string(version.substr(0, version.find('.', version.find('.') + 1)));
}

fs::path torch_of_trainer() {
  if (!is_in_package()) return {};
  const std::string built(build_torch_version);
  const auto demand = [&](const std::string& found, const std::string& where) {
    if (minor_version(found) != minor_version(built))
      throw Error(ErrorKind::config,
                  fmt::format("ranvier-train was built for torch {}, and torch {} is installed {}: install torch=={}, "
                              "or ranvier again from its sources (pip install .)",
                              minor_version(built), minor_version(found), where, built));
  };
  const fs::path packages = package().parent_path();
  if (const std::string found = version_of_torch(packages / "torch"); !found.empty()) {
    demand(found, "beside it");
    return {};
  }
  const auto python = find_python();
  const fs::path torch = python ? torch_of(*python) : fs::path();
  const std::string found = torch.empty() ? "" : version_of_torch(torch);
  if (minor_version(found) != minor_version(built) && trainer_starts_as_it_is()) return {};
  if (found.empty())
    throw Error(ErrorKind::config,
                fmt::format("ranvier-train needs torch {}, which is neither in {} nor known to {}: install torch=={}, "
                            "or name the Python that has it in RANVIER_PYTHON",
                            minor_version(built), packages.string(), python ? python->string() : "any Python", built));
  demand(found, fmt::format("in {}", torch.parent_path().string()));
  return torch / "lib";
}

void become_trainer(const fs::path& trainer, const Arguments& arguments) {
  std::error_code problem;
  if (fs::current_path(problem).empty())  // libtorch finds its own files by it
    throw Error(ErrorKind::config,
                fmt::format("the current folder is gone ({}); change to one that is there", problem.message()));
  if (const fs::path libraries = torch_of_trainer(); !libraries.empty()) {
    constexpr auto name = "LD_LIBRARY_PATH";
    const char* const others = std::getenv(name);
    const bool has_others = others != nullptr && *others != 0;
    setenv(name, (has_others ? libraries.string() + ":" + others : libraries.string()).c_str(), 1);
  }
  Arguments words{trainer.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  become(std::move(words));
}

int run_rebuild(const Arguments& arguments) {
  const auto python = find_python();
  if (!python) throw Error(ErrorKind::config, "no Python was found: name the one that has ranvier in RANVIER_PYTHON");
  Arguments words{python->string(), "-m", "ranvier", "rebuild"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  become(std::move(words));
}

}  // namespace ranvier::cli
