#include "base/system_files.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

namespace ranvier {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

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

std::optional<std::size_t> meminfo_bytes(const std::string& key) {
  std::istringstream words(field("/proc/meminfo", key));
  std::size_t kibibytes = 0;
  if (!(words >> kibibytes)) return std::nullopt;
  return kibibytes * 1024;
}

std::string cgroup_file(const std::string& version2, const std::string& version1) {
  std::string path = first_line("/proc/self/cgroup");
  path = path.starts_with("0::") ? path.substr(3) : "";
  for (const auto& candidate :
       {"/sys/fs/cgroup" + path + "/" + version2, "/sys/fs/cgroup/" + version2, "/sys/fs/cgroup/" + version1})
    if (std::string line = first_line(candidate); !line.empty()) return line;
  return {};
}

std::optional<std::size_t> available_memory_bytes() {
  const auto available = meminfo_bytes("MemAvailable");
  std::istringstream limit_words(cgroup_file("memory.max", "memory/memory.limit_in_bytes"));
  std::istringstream usage_words(cgroup_file("memory.current", "memory/memory.usage_in_bytes"));
  std::size_t limit = 0, usage = 0;
  if (!(limit_words >> limit) || !(usage_words >> usage)) return available;
  return std::min(available.value_or(std::numeric_limits<std::size_t>::max()), limit - std::min(limit, usage));
}

}  // namespace ranvier
