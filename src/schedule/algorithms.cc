// The builders by name.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ranvier/error.h"
#include "ranvier/schedule.h"
#include "ranvier/text.h"
#include "schedule/steps.h"

namespace ranvier {

std::span<const Algorithm> algorithms() {
  using enum Collective;
  static const std::array table{
      Algorithm{"ring",
                "neighbours only: the fewest bytes, for large vectors in any world",
                {all_reduce, reduce_scatter, all_gather},
                true,
                [](Collective collective, Rank world, Rank) { return ring(collective, world); }},
      Algorithm{"halving_doubling",
                "butterfly: the fewest bytes in the fewest rounds, any world size",
                {all_reduce, reduce_scatter, all_gather},
                true,
                [](Collective collective, Rank world, Rank) { return halving_doubling(collective, world); }},
      Algorithm{"binomial_tree",
                "log2 rounds from or to a root",
                {all_reduce, reduce, broadcast, gather, scatter},
                false,  // inner ranks do not know the sizes of others' parts
                &binomial_tree},
      Algorithm{"direct",
                "every pair at once: the fewest rounds, for small worlds and uneven parts",
                {all_reduce, reduce, broadcast, all_gather, reduce_scatter, all_to_all, gather, scatter},
                true,
                &direct},
      Algorithm{"one_round",
                "everybody's vector to everybody: the least latency, for tiny vectors",
                {all_reduce},
                true,
                [](Collective collective, Rank world, Rank root) {
                  steps::check("one_round", collective, {all_reduce}, world, root);
                  return one_round(world);
                }}};
  return table;
}

const Algorithm& find_algorithm(std::string_view name, Collective collective) {
  std::vector<std::string_view> names;
  std::vector<std::string_view> fitting;
  const Algorithm* found = nullptr;
  for (const Algorithm& algorithm : algorithms()) {
    names.push_back(algorithm.name);
    const auto& built = algorithm.collectives;
    if (std::find(built.begin(), built.end(), collective) != built.end()) fitting.push_back(algorithm.name);
    if (algorithm.name == name) found = &algorithm;
  }
  if (found == nullptr) throw Error(ErrorKind::usage, unknown_name("algorithm", name, names));
  if (std::find(fitting.begin(), fitting.end(), name) == fitting.end()) {
    std::vector<std::string_view> built;
    for (const Collective each : found->collectives) built.push_back(name_of(each));
    throw Error(ErrorKind::usage,
                fmt::format("algorithm '{}' does not build {}, only {}; {}: {}", name, name_of(collective),
                            fmt::join(built, ", "), fitting.empty() ? "no algorithm does" : "these do",
                            fmt::join(fitting, ", ")));
  }
  return *found;
}

}  // namespace ranvier
