// The libraries that can be measured beside ranvier, and how their ranks are started.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "launch.h"

namespace ranvier::bench {

struct Options;

std::vector<std::string_view> baseline_names();

// mpirun gives its ranks a second to end, and then removes what they had in /dev/shm: nobody does where it is killed
// before.
constexpr std::chrono::seconds mpirun_term_to_kill(5);

// mpirun and what it needs to start so many processes on this machine; empty where there is no mpirun.
std::vector<std::string> mpirun_command(Rank ranks);

struct BaselineLaunch {
  std::string unavailable;  // why it cannot be started here and what to do, one sentence; empty if it can
  cli::Launch launch;
};
// `pinned`: every rank has a core to itself.
BaselineLaunch baseline_launch(std::string_view name, const Options&, bool pinned);

}  // namespace ranvier::bench
