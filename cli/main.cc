// The program `ranvier`: finds the subcommand and turns what it throws into a sentence and an exit code.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <vector>

#include "build_info.h"
#include "commands.h"
#include "output.h"
#include "package.h"
#include "programs.h"
#include "ranvier/error.h"
#include "ranvier/text.h"

namespace ranvier::cli {
namespace {

struct Command {
  std::string_view name;
  std::string_view summary;
  int (*run)(const Arguments&);
};

// Training needs libtorch, and this program starts without it: so that is a program of its own.
int run_train(const Arguments& arguments) {
  const auto trainer = beside_this_program("ranvier-train");
  if (!trainer)
    throw Error(ErrorKind::config,
                "this build has no ranvier-train: it was made without torch; configure it with "
                "-DRANVIER_TORCH=ON and a Python that has torch (-DRANVIER_PYTHON=…)");
  become_trainer(*trainer, arguments);
}

// Outside of the Python package there is nothing to rebuild.
constexpr Command rebuild{"rebuild", "compile the part of the Python package that belongs to one version of torch",
                          run_rebuild};

constexpr std::array always{
    Command{"train", "train a model over several workers", run_train},
    Command{"bench", "time collectives (nccl-tests flags and columns)", run_bench},
    Command{"probe", "measure latency and bandwidth between every two ranks", run_probe},
    Command{"plan", "choose how to communicate: algorithm, bucket and codec for a workload on a network", run_plan},
    Command{"simulate", "predict a training step on a network that need not be there, for any world size",
            run_simulate},
    Command{"design", "split bandwidth over a network's dimensions, for time or for time x cost", run_design},
    Command{"report", "compare runs of training: accuracy, time to target, bytes, rounds, bottleneck", run_report},
    Command{"key", "make a key that keeps others out of a job", run_key},
    Command{"codec", "compress a file of floats: ratio, error, speed of each codec", run_codec},
    Command{"doctor", "what this machine and build can do, and what is wrong", run_doctor},
};

std::vector<Command> commands() {
  std::vector<Command> all(always.begin(), always.end());
  if (is_in_package()) all.push_back(rebuild);
  return all;
}

void print_help() {
  fmt::print(
      "ranvier: communication for distributed deep-learning training\n\nUsage: ranvier SUBCOMMAND [OPTIONS]\n\n");
  for (const auto& command : commands()) fmt::print("  {:<8} {}\n", command.name, command.summary);
  fmt::print(
      "\n'ranvier SUBCOMMAND --help' explains each; 'ranvier --version' says which build this is.\n"
      "Exit code: 0 done, 1 failed, 2 wrong usage.\n\n"
      "Examples:\n  ranvier doctor\n  ranvier bench --ranks 2\n  ranvier train --workers 4\n"
      "  ranvier codec list\n");
}

Command find_command(const std::string& name) {
  const std::vector<Command> known = commands();
  for (const auto& command : known)
    if (command.name == name) return command;
  std::vector<std::string_view> names;
  for (const auto& command : known) names.push_back(command.name);
  const bool option = name.starts_with("-");
  if (option) names = {"--help", "--version"};
  throw Error(ErrorKind::usage, unknown_name(option ? "option" : "subcommand", name, names));
}

int run(const Arguments& arguments) {
  if (arguments.empty()) {
    print_help();
    return 2;
  }
  if (arguments[0] == "--help" || arguments[0] == "-h" || (arguments[0] == "help" && arguments.size() == 1)) {
    print_help();
    return 0;
  }
  if (arguments[0] == "--version") {
    fmt::print("ranvier {} ({}, {}{}{})\n", build_version, build_compiler, build_type,
               build_torch_version.empty() ? "" : ", torch ", build_torch_version);
    return 0;
  }
  const bool asks_for_help = arguments[0] == "help";  // help train, as train --help
  const Command command = find_command(arguments[asks_for_help ? 1 : 0]);
  try {
    return command.run(asks_for_help ? Arguments{"--help"} : Arguments{arguments.begin() + 1, arguments.end()});
  } catch (const Error& problem) {
    return fail(fmt::format("ranvier {}", command.name), problem);
  }
}

}  // namespace
}  // namespace ranvier::cli

int main(int argc, char** argv) {
  ranvier::cli::open_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond the limit (ulimit -f) fails with a reason, and becomes a sentence
  try {
    return ranvier::cli::after_output(ranvier::cli::run({argv + 1, argv + argc}));
  } catch (const std::exception& problem) {
    if (std::ferror(stdout) != 0) return ranvier::cli::after_output(1);  // fmt throws what it could not print
    return ranvier::cli::fail("ranvier", problem);
  }
}
