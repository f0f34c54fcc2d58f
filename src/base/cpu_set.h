// Processors on which ranks may run: of a host, less what taskset, a container or a launcher's binding leaves.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ranvier {

class CpuSet {
 public:
  CpuSet() { CPU_ZERO(&set_); }
  static CpuSet own();  // of the calling thread

  // As the kernel writes lists of them: "0-3,8". No value if it is no such list.
  std::string text() const;
  static std::optional<CpuSet> parse(std::string_view text);

  void add(const CpuSet& other) { CPU_OR(&set_, &set_, &other.set_); }
  std::size_t count() const { return static_cast<std::size_t>(CPU_COUNT(&set_)); }

 private:
  cpu_set_t set_;
};

// The ranks of one host. Whether they have a core each follows from all of them only: each may be bound to its own.
class SharedCores {
 public:
  void add_rank(const CpuSet& cpus) {
    ++ranks_;
    cpus_.add(cpus);
  }
  // Rounded up.
  int ranks_per_core() const {
    const std::size_t cores = std::max(cpus_.count(), std::size_t{1});
    return static_cast<int>((ranks_ + cores - 1) / cores);
  }

 private:
  std::size_t ranks_ = 0;
  CpuSet cpus_;
};

}  // namespace ranvier
