// What this machine is: facts that a number means little without.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace ranvier::cli {

// The first line of a file, without its end; empty if it cannot be read.
std::string first_line(const std::string& path);

std::string cpu_model();
int online_cores();
int usable_cores();                    // of which this process may run on
std::optional<double> cgroup_cores();  // what the control group's quota comes to; none without a quota
std::size_t memory_bytes();
std::size_t available_memory_bytes();  // now; no more than the control group allows
std::string congestion_control();

// All of it, for --json: machine, system, build, time.
nlohmann::json environment();

}  // namespace ranvier::cli
