// What this machine is: facts that a number means little without.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace ranvier::cli {

std::string cpu_model();
int online_cores();
int usable_cores();                    // of which this process may run on
std::optional<double> cgroup_cores();  // what the control group's quota comes to; none without a quota
std::size_t memory_bytes();
std::string congestion_control();

// All of it, for --json: machine, system, build, time.
nlohmann::json environment();

}  // namespace ranvier::cli
