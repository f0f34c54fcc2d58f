#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "build_info.h"
#include "doctor/check.h"
#include "integrations/trainer/default_data.h"
#include "launch.h"
#include "package.h"
#include "programs.h"
#include "ranvier/coding.h"
#include "ranvier/error.h"

namespace ranvier::doctor {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::seconds longest_start_of_torch(60);  // from a cold disk it takes many seconds

// What torch and ranvier call themselves, a line each, and the part of ranvier that serves this torch; "-" for what
// cannot be imported.
constexpr auto versions_script = R"(
for name in ("torch", "ranvier"):
    try:
        print(getattr(__import__(name), "__version__", "unknown"))
    except ImportError as problem:
        print("-", " ".join(str(problem).split()))
try:
    import torch
    from ranvier._parts import library_for
    print(library_for(torch.__version__))
except (ImportError, RuntimeError) as problem:
    print("-", " ".join(str(problem).split()))
)";

std::string line(const std::string& text, int number) {
  std::size_t begin = 0;
  for (; number > 0 && begin != std::string::npos; --number) begin = text.find('\n', begin) + 1;
  return text.substr(begin, text.find('\n', begin) - begin);
}

bool is_there(const std::string& found) { return !found.empty() && !found.starts_with("-"); }

// `part`: the library of the package for this torch, if the package is there. After `python -m ranvier rebuild` that
// decides, and not what this program was built for.
Check check_torch(const std::string& python, const std::string& found, bool has_package, const std::string& part) {
  const std::string built(cli::build_torch_version);
  if (!is_there(found))
    return {"torch", Health::warn, fmt::format("{} cannot import it", python),
            fmt::format("needed for the PyTorch backend and the gloo baseline only: {} -m pip install torch{}, or name "
                        "another Python in RANVIER_PYTHON",
                        python, built.empty() ? "" : "==" + built)};
  if (has_package)
    return check("torch", fmt::format("{} for {}", found, python), is_there(part), Health::fail,
                 fmt::format("'{} -m ranvier rebuild' compiles the part of ranvier that this torch needs", python));
  if (built.empty())
    return {"torch", Health::warn, fmt::format("{} for {}, but this build is without it", found, python),
            "build with -DRANVIER_TORCH=ON to train and to have the PyTorch backend"};
  return check("torch", fmt::format("{} for {}; this build is for {}", found, python, built),
               cli::minor_version(found) == cli::minor_version(built), Health::fail,
               fmt::format("install torch=={} there, or build ranvier again with -DRANVIER_PYTHON={}", built, python));
}

Check check_package(const std::string& python, const std::string& found) {
  return check(
      "python package",
      is_there(found) ? fmt::format("ranvier {} for {}", found, python)
                      : fmt::format("{} cannot import ranvier", python),
      is_there(found), Health::warn,
      fmt::format("only for dist.init_process_group(\"ranvier\"): {} -m pip install . in ranvier's sources", python));
}

// The package is a core that knows no torch, and a part compiled for one minor version of it.
Check check_torch_part(const std::string& python, const std::string& found) {
  const bool active = is_there(found);
  return check("torch part",
               active ? found : fmt::format("none serves this torch{}", found.empty() ? "" : ": " + found.substr(2)),
               active, Health::warn,
               fmt::format("{} -m ranvier rebuild compiles it for the torch that is installed", python));
}

Check check_trainer() {
  const auto trainer = cli::beside_this_program("ranvier-train");
  if (!trainer)
    return {"trainer", Health::warn, "this build has no 'ranvier train'",
            "build with -DRANVIER_TORCH=ON and a Python that has torch (-DRANVIER_PYTHON=…)"};
  try {
    cli::torch_of_trainer();
  } catch (const Error& problem) {
    return {"trainer", Health::warn, fmt::format("{} is for torch {}", trainer->string(), cli::build_torch_version),
            problem.what()};
  }
  // That its libraries are found, only starting it tells. What the loader says is on stderr.
  const auto answer =
      cli::ask({"/bin/sh", "-c", "exec \"$0\" train --help 2>&1", cli::this_program()}, longest_start_of_torch);
  const bool starts = answer && answer->exit_code == 0;
  const std::string why =
      answer ? line(answer->output, 0) : fmt::format("it takes longer than {} s", longest_start_of_torch.count());
  return check("trainer", starts ? trainer->string() : fmt::format("{} does not start: {}", trainer->string(), why),
               starts, Health::warn,
               "install what is missing there, or ranvier again from its sources; 'ranvier train --help' tries it");
}

// As `ranvier train` finds its data without --data.
Check check_data() {
  const char* const named = std::getenv("RANVIER_DATA");
  const std::string_view name = named == nullptr || *named == 0 ? trainer::default_data : named;
  const std::string place(name == trainer::default_data ? trainer::default_data_folder : name);
  std::error_code ignored;
  const bool is_there = std::filesystem::exists(place, ignored);
  return check("data set", is_there ? place : fmt::format("{} is not there", place), is_there, Health::warn,
               fmt::format("only for 'ranvier train' without --data: apt-get install {}, or name other data in "
                           "RANVIER_DATA",
                           trainer::default_data_package));
}

Check check_mpi() {
  const auto mpirun = cli::find_program("mpirun");
  if (!mpirun)
    return {"mpi", Health::warn, "mpirun is not in PATH",
            "only for 'ranvier bench --baseline mpi': apt install openmpi-bin"};
  const auto answer = cli::ask({mpirun->string(), "--version"}, 10s);
  const std::string version = answer ? line(answer->output, 0) : mpirun->string();
  return check("mpi", version, cli::beside_this_program("ranvier-bench-mpi").has_value(), Health::warn,
               "this build has no ranvier-bench-mpi; install libopenmpi-dev and build again for --baseline mpi");
}

}  // namespace

std::vector<Check> check_software(const std::string& python_name) {
  std::vector<Check> checks;
  const auto python = cli::find_python(python_name);
  const auto answer =
      python ? cli::ask({python->string(), "-c", versions_script}, longest_start_of_torch) : std::nullopt;
  if (!python_name.empty() && (!answer || answer->exit_code != 0)) {
    checks.push_back({"torch", Health::fail, fmt::format("{} is no Python that runs", python_name),
                      "name one by --python, or leave it out"});
  } else if (python) {
    const std::string versions = answer ? answer->output : "";
    const std::string package = line(versions, 1), part = line(versions, 2);
    checks.push_back(check_torch(python->string(), line(versions, 0), is_there(package), part));
    checks.push_back(check_package(python->string(), package));
    if (is_there(package)) checks.push_back(check_torch_part(python->string(), part));
  } else {
    checks.push_back(
        {"torch", Health::warn, "no Python was found", "name one that has torch in --python or RANVIER_PYTHON"});
  }
  checks.push_back(check_trainer());
  checks.push_back(check_data());
  checks.push_back(check_mpi());
  checks.push_back({"zstd", Health::ok, fmt::format("{}, to compare the codecs with", zstd_version()), ""});
  return checks;
}

}  // namespace ranvier::doctor
