#include "machine.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/cpu_set.h"
#include "base/system_files.h"
#include "build_info.h"
#include "ranvier/kernel.h"

namespace ranvier::cli {
std::string cpu_model() {
  const std::string model = field("/proc/cpuinfo", "model name");
  return model.empty() ? "unknown processor" : model;
}

int online_cores() { return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)); }

int usable_cores() { return static_cast<int>(CpuSet::own().count()); }

std::optional<double> cgroup_cores() {
  // "max 100000" or "150000 100000": microseconds of each period. Version 1 has a file for each number.
  std::istringstream words(cgroup_file("cpu.max", "cpu/cpu.cfs_quota_us"));
  double quota = 0, period = 100'000;
  if (!(words >> quota) || quota <= 0) return std::nullopt;
  words >> period;
  return period > 0 ? std::optional(quota / period) : std::nullopt;
}

std::size_t memory_bytes() { return meminfo_bytes("MemTotal").value_or(0); }

std::string congestion_control() { return first_line("/proc/sys/net/ipv4/tcp_congestion_control"); }

nlohmann::json environment() {
  utsname system{};
  uname(&system);
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  nlohmann::json result = {
      {"cpu", cpu_model()},
      {"cores", online_cores()},
      {"usable_cores", usable_cores()},
      {"memory_bytes", memory_bytes()},
      {"instruction_set", kernel::instruction_set()},
      {"system", fmt::format("{} {}", system.sysname, system.release)},
      {"host", system.nodename},
      {"congestion_control", congestion_control()},
      {"load_average", first_line("/proc/loadavg")},
      {"ranvier", build_version},
      {"compiler", build_compiler},
      {"build_type", build_type},
      {"torch_built_for", build_torch_version},
      {"time", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now))},
  };
  if (const auto quota = cgroup_cores()) result["cgroup_cores"] = *quota;
  return result;
}

}  // namespace ranvier::cli
