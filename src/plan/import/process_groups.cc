// ASTRA-sim's communicator groups, in JSON.
#include <fmt/format.h>

#include <limits>
#include <set>

#include "plan/import/json_file.h"
#include "ranvier/design_files.h"

namespace ranvier {

ProcessGroups read_process_groups(const std::filesystem::path& path) {
  using Place = plan::json::json_pointer;
  constexpr auto expected = "an object that has a list of ranks for each process group";
  const plan::JsonFile file(path);
  if (!file.root().is_object()) file.refuse(Place(), expected);
  ProcessGroups groups;
  for (const auto& [name, ranks] : file.root().items()) {
    const Place group = Place() / name;
    if (!ranks.is_array() || ranks.empty()) file.refuse(group, "a list of one rank or more");
    std::set<Rank> seen;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<Rank>::max());
      if (!ranks[i].is_number_unsigned() || ranks[i].get<std::uint64_t>() > most)
        file.refuse(group / i, "a rank: a whole number from 0");
      if (!seen.insert(ranks[i].get<Rank>()).second) file.refuse(group / i, "a rank that stands in its group once");
      groups[name].push_back(ranks[i].get<Rank>());
    }
  }
  return groups;
}

}  // namespace ranvier
