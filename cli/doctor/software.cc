#include <fmt/format.h>

#include <chrono>

#include "build_info.h"
#include "doctor/check.h"
#include "programs.h"

namespace ranvier::doctor {
namespace {

using namespace std::chrono_literals;

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

// "2.13.0+cpu" -> "2.13", which is what binaries of one torch share.
std::string minor_version(std::string_view version) {
  return std::string(version.substr(0, version.find('.', version.find('.') + 1)));
}

Check check_torch(const std::string& python, const std::string& found) {
  const std::string built(cli::build_torch_version);
  if (found.empty() || found.starts_with("-"))
    return {"torch", Health::warn, fmt::format("{} cannot import it", python),
            fmt::format("needed for the PyTorch backend and the gloo baseline only: {} -m pip install torch{}, or name "
                        "another Python in RANVIER_PYTHON",
                        python, built.empty() ? "" : "==" + built)};
  if (built.empty())
    return {"torch", Health::warn, fmt::format("{} for {}, but this build is without it", found, python),
            "build with -DRANVIER_TORCH=ON to train and to have the PyTorch backend"};
  return check("torch", fmt::format("{} for {}; this build is for {}", found, python, built),
               minor_version(found) == minor_version(built), Health::fail,
               fmt::format("install torch=={} there, or build ranvier again with -DRANVIER_PYTHON={}", built, python));
}

Check check_package(const std::string& python, const std::string& found) {
  return check(
      "python package",
      found.empty() || found.starts_with("-") ? fmt::format("{} cannot import ranvier", python)
                                              : fmt::format("ranvier {} for {}", found, python),
      !found.empty() && !found.starts_with("-"), Health::warn,
      fmt::format("only for dist.init_process_group(\"ranvier\"): {} -m pip install . in ranvier's sources", python));
}

// The package is a core that knows no torch, and a part compiled for one minor version of it.
Check check_torch_part(const std::string& python, const std::string& found) {
  const bool active = !found.empty() && !found.starts_with("-");
  return check("torch part",
               active ? found : fmt::format("none serves this torch{}", found.empty() ? "" : ": " + found.substr(2)),
               active, Health::warn,
               fmt::format("{} -m ranvier rebuild compiles it for the torch that is installed", python));
}

Check check_trainer() {
  const auto trainer = cli::beside_this_program("ranvier-train");
  return check("trainer", trainer ? trainer->string() : "this build has no 'ranvier train'", trainer.has_value(),
               Health::warn, "build with -DRANVIER_TORCH=ON and a Python that has torch (-DRANVIER_PYTHON=…)");
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
  if (const auto python = cli::find_python(python_name)) {
    // Importing torch from a cold disk takes many seconds.
    const auto answer = cli::ask({python->string(), "-c", versions_script}, 60s);
    const std::string versions = answer ? answer->output : "";
    checks.push_back(check_torch(python->string(), line(versions, 0)));
    const std::string package = line(versions, 1);
    checks.push_back(check_package(python->string(), package));
    if (!package.empty() && !package.starts_with("-"))
      checks.push_back(check_torch_part(python->string(), line(versions, 2)));
  } else {
    checks.push_back({"torch", Health::warn, "no Python was found", "name one that has torch in RANVIER_PYTHON"});
  }
  checks.push_back(check_trainer());
  checks.push_back(check_mpi());
  return checks;
}

}  // namespace ranvier::doctor
