#include "base/cpu_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "ranvier/text.h"

namespace ranvier {

CpuSet CpuSet::own() {
  CpuSet own;
  if (sched_getaffinity(0, sizeof own.set_, &own.set_) == 0) return own;
  for (int cpu = 0; cpu < std::min<int>(CPU_SETSIZE, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN))); ++cpu)
    CPU_SET(cpu, &own.set_);
  return own;
}

std::string CpuSet::text() const {
  std::vector<std::string> ranges;
  for (int first = 0; first < CPU_SETSIZE; ++first) {
    if (!CPU_ISSET(first, &set_)) continue;
    int last = first;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set_)) ++last;
    ranges.push_back(first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last));
    first = last;
  }
  return fmt::format("{}", fmt::join(ranges, ","));
}

std::optional<CpuSet> CpuSet::parse(std::string_view text) {
  CpuSet set;
  while (!text.empty()) {
    const std::string_view range = text.substr(0, text.find(','));
    text.remove_prefix(std::min(range.size() + 1, text.size()));
    const std::size_t dash = range.find('-');
    const auto first = parse_number<int>(range.substr(0, dash));
    const auto last = dash == range.npos ? first : parse_number<int>(range.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= CPU_SETSIZE) return std::nullopt;
    for (int cpu = *first; cpu <= *last; ++cpu) CPU_SET(cpu, &set.set_);
  }
  return set;
}

}  // namespace ranvier
