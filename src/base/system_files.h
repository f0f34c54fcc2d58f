// What /proc and /sys tell of this host, and of the control group that this process is in.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace ranvier {

// Empty if there is none.
std::string first_line(const std::string& path);
// The value of `key` in a file of lines "key : value"; empty if there is none.
std::string field(const std::string& path, const std::string& key);
// The first line of a file of this process's control group, of version 2 or of version 1's controller; containers see
// theirs at the root. Empty if there is none.
std::string cgroup_file(const std::string& version2, const std::string& version1);

// Of /proc/meminfo.
std::optional<std::size_t> meminfo_bytes(const std::string& key);
// What processes may take now: no more than the control group allows. None where neither tells.
std::optional<std::size_t> available_memory_bytes();

}  // namespace ranvier
