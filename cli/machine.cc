#include "machine.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "build_info.h"
#include "ranvier/kernel.h"

namespace ranvier::cli {
namespace {

// The value of `key` in a file of lines "key : value"; empty if there is none.
std::string field(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const auto colon = line.find(':');
    const auto value = line.find_first_not_of(" \t", colon + 1);
    return colon == std::string::npos || value == std::string::npos ? "" : line.substr(value);
  }
  return {};
}

std::size_t meminfo_bytes(const std::string& key) {
  std::istringstream words(field("/proc/meminfo", key));
  std::size_t kibibytes = 0;
  words >> kibibytes;
  return kibibytes * 1024;
}

// A file of this process's control group, of version 2 or of version 1's controller; containers see theirs at the root.
std::string cgroup_file(const std::string& version2, const std::string& version1) {
  std::string path = first_line("/proc/self/cgroup");
  path = path.starts_with("0::") ? path.substr(3) : "";
  for (const auto& candidate :
       {"/sys/fs/cgroup" + path + "/" + version2, "/sys/fs/cgroup/" + version2, "/sys/fs/cgroup/" + version1})
    if (std::string line = first_line(candidate); !line.empty()) return line;
  return {};
}

}  // namespace

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string cpu_model() {
  const std::string model = field("/proc/cpuinfo", "model name");
  return model.empty() ? "unknown processor" : model;
}

int online_cores() { return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)); }

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : online_cores();
}

std::optional<double> cgroup_cores() {
  // "max 100000" or "150000 100000": microseconds of each period. Version 1 has a file for each number.
  std::istringstream words(cgroup_file("cpu.max", "cpu/cpu.cfs_quota_us"));
  double quota = 0, period = 100'000;
  if (!(words >> quota) || quota <= 0) return std::nullopt;
  words >> period;
  return period > 0 ? std::optional(quota / period) : std::nullopt;
}

std::size_t memory_bytes() { return meminfo_bytes("MemTotal"); }

std::size_t available_memory_bytes() {
  const std::size_t available = meminfo_bytes("MemAvailable");
  std::istringstream limit_words(cgroup_file("memory.max", "memory/memory.limit_in_bytes"));
  std::istringstream usage_words(cgroup_file("memory.current", "memory/memory.usage_in_bytes"));
  std::size_t limit = 0, usage = 0;
  if (!(limit_words >> limit) || !(usage_words >> usage)) return available;
  return std::min(available, limit - std::min(limit, usage));
}

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
