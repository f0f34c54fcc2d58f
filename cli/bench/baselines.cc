#include "bench/baselines.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>

#include "bench/options.h"
#include "bench/peer.h"
#include "programs.h"

namespace ranvier::bench {
namespace {

using namespace std::chrono_literals;

// Left to itself Open MPI would use shared memory for both; ob1 is the component that carries these transports. Beside
// our own transport over MPI it chooses as it does for that.
void choose_carrier(std::vector<std::string>& command, const std::string& transport) {
  if (transport == "mpi") return;
  for (const char* word : {"--mca", "pml", "ob1", "--mca", "btl", transport == "tcp" ? "self,tcp" : "self,vader"})
    command.emplace_back(word);
  if (transport != "tcp") return;
  for (const char* word : {"--mca", "btl_tcp_if_include", "lo"}) command.emplace_back(word);
}

BaselineLaunch mpi_launch(const Options& options, bool pinned) {
  const auto peer = cli::beside_this_program("ranvier-bench-mpi");
  if (!peer) return {"mpi: this build has no ranvier-bench-mpi; install libopenmpi-dev and build again", {}};
  std::vector<std::string> command = mpirun_command(*options.ranks);
  if (command.empty()) return {"mpi: mpirun is not in PATH; install openmpi-bin", {}};
  const auto add = [&](std::initializer_list<const char*> words) {
    command.insert(command.end(), words.begin(), words.end());
  };
  choose_carrier(command, options.transport);
  add({"--bind-to", pinned ? "core" : "none"});
  // Its ranks spin; where two share a core, one must let the other run.
  add({"--mca", "mpi_yield_when_idle", pinned ? "0" : "1"});
  command.push_back(peer->string());
  return {"", {.count = 1, .command = command, .term_to_kill = mpirun_term_to_kill}};
}

BaselineLaunch torch_launch(std::string_view name, const Options& options) {
  const std::string_view backend = name == "torch" ? "ranvier" : name;
  const auto peer = cli::beside_this_program("ranvier-bench-torch.py");
  if (!peer) return {fmt::format("{}: this build has no ranvier-bench-torch.py; build it from its sources", name), {}};
  const auto python = cli::find_python(options.python);
  if (!python)
    return {fmt::format("{}: there is no Python '{}'; name one that has torch with --python", name, options.python),
            {}};
  for (const std::string_view module : {std::string_view("torch"), backend}) {
    if (module == "gloo") continue;  // is within torch
    const auto script =
        fmt::format("import importlib.util, sys; sys.exit(importlib.util.find_spec('{}') is None)", module);
    const auto found = cli::ask({python->string(), "-c", script}, 30s);
    if (!found || found->exit_code != 0)
      return {fmt::format("{}: {} cannot import {}; name a Python that can with --python or RANVIER_PYTHON", name,
                          python->string(), module),
              {}};
  }

  cli::Launch launch{.count = *options.ranks,
                     .command = {python->string(), "-W", "ignore", peer->string(), std::string(backend)},
                     .longest_stop = options.dead_after};
  // gloo works in threads of its own, which want a core, too, and torch's launchers pin nobody.
  if (options.pin.value_or(false)) launch.environment.emplace_back(pin_variable, "1");
  if (backend == "ranvier") {
    launch.environment.emplace_back("RANVIER_TRANSPORT", options.transport);
    launch.environment.emplace_back("RANVIER_SOCKETS", std::to_string(options.sockets));
    launch.environment.emplace_back(
        "RANVIER_DEAD_AFTER_MS",
        std::to_string(options.dead_after.count()));  // as for the ranks that are measured directly
  }
  return {"", launch};
}

}  // namespace

std::vector<std::string> mpirun_command(Rank ranks) {
  const auto mpirun = cli::find_program("mpirun");
  if (!mpirun) return {};
  std::vector<std::string> command{mpirun->string(), "-n", std::to_string(ranks), "--oversubscribe"};
  if (geteuid() == 0) command.emplace_back("--allow-run-as-root");
  return command;
}

std::vector<std::string_view> baseline_names() { return {"mpi", "gloo", "torch"}; }

BaselineLaunch baseline_launch(std::string_view name, const Options& options, bool pinned) {
  return name == "mpi" ? mpi_launch(options, pinned) : torch_launch(name, options);
}

}  // namespace ranvier::bench
