// Topologies by their specs.
#include <fmt/format.h>

#include <array>
#include <optional>

#include "base/spec.h"
#include "ranvier/error.h"
#include "ranvier/text.h"
#include "ranvier/topology.h"

namespace ranvier {
namespace {

[[noreturn]] void refuse(const std::string& sentence) { throw Error(ErrorKind::usage, sentence); }

std::optional<std::int32_t> positive(std::string_view text) {
  const auto number = parse_number<std::int32_t>(text);
  return number && *number >= 1 ? number : std::nullopt;
}

void refuse_settings(const StageSpec& stage, bool value_too) {
  if (!stage.settings.empty())
    refuse(fmt::format("topology '{}' has no setting '{}'; leave it out", stage.name, stage.settings.front().first));
  if (value_too && !stage.value.empty())
    refuse(fmt::format("topology '{}' takes no value, and '{}' was given; write just '{}'", stage.name, stage.value,
                       stage.name));
}

// Two sizes that multiply to the world, as near to each other as can be: what a sentence suggests.
std::string suggested_dims(Rank world) {
  Rank rows = 1;
  for (Rank size = 1; size <= world / size; ++size)
    if (world % size == 0) rows = size;
  return fmt::format("{}x{}", rows, world / rows);
}

// "2x4x8"
std::vector<Rank> dims_of(const StageSpec& stage, Rank world) {
  refuse_settings(stage, false);
  std::vector<Rank> dims;
  std::int64_t ranks = 1;
  for (std::string_view left = stage.value;;) {
    const auto end = left.find('x');
    const auto size = positive(left.substr(0, end));
    if (!size)
      refuse(fmt::format("topology '{}' needs the sizes of its dimensions, not '{}'; write {}:{}", stage.name,
                         stage.value, stage.name, suggested_dims(world)));
    dims.push_back(*size);
    ranks = ranks > world ? ranks : ranks * *size;  // stays too large without running over
    if (end == std::string_view::npos) break;
    left.remove_prefix(end + 1);
  }
  if (ranks != world)
    refuse(fmt::format("the dimensions of topology {}:{} do not multiply to the {} ranks of this world; write {}:{}",
                       stage.name, stage.value, world, stage.name, suggested_dims(world)));
  return dims;
}

Topology fat_tree_of(const StageSpec& stage, Rank world) {
  const auto arity = positive(stage.value);
  if (!arity)
    refuse(fmt::format("topology 'fat_tree' needs the number of cables down a switch, not '{}'; write fat_tree:4",
                       stage.value));
  std::int32_t oversubscription = 1;
  for (const auto& [key, value] : stage.settings) {
    constexpr std::array<std::string_view, 1> keys{"oversubscription"};
    if (key != keys[0]) refuse(unknown_name("setting of fat_tree", key, keys));
    const auto number = positive(value);
    if (!number) refuse(fmt::format("oversubscription={} of fat_tree is not a whole number from 1", value));
    oversubscription = *number;
  }
  return topology::fat_tree(world, *arity, oversubscription);
}

// Every topology by its name: one row each.
struct Maker {
  std::string_view name;
  Topology (*make)(const StageSpec&, Rank world);
};
constexpr std::array makers{
    Maker{"star",
          [](const StageSpec& stage, Rank world) {
            refuse_settings(stage, true);
            return topology::star(world);
          }},
    Maker{"ring",
          [](const StageSpec& stage, Rank world) {
            refuse_settings(stage, true);
            return topology::ring(world);
          }},
    Maker{"mesh", [](const StageSpec& stage, Rank world) { return topology::mesh(dims_of(stage, world)); }},
    Maker{"torus", [](const StageSpec& stage, Rank world) { return topology::torus(dims_of(stage, world)); }},
    Maker{"fat_tree", fat_tree_of},
    Maker{"fully_connected", [](const StageSpec& stage, Rank world) {
            refuse_settings(stage, true);
            return topology::fully_connected(world);
          }}};

}  // namespace

std::span<const std::string_view> topology_names() {
  static constexpr auto names = [] {
    std::array<std::string_view, makers.size()> result;
    for (std::size_t i = 0; i < makers.size(); ++i) result[i] = makers[i].name;
    return result;
  }();
  return names;
}

Topology make_topology(std::string_view spec, Rank world) {
  const auto stages = parse_spec(spec);
  const StageSpec& stage = stages.front();
  for (const Maker& maker : makers) {
    if (maker.name != stage.name) continue;
    if (stages.size() > 1) refuse(fmt::format("'{}' joins several topologies; name one", spec));
    return maker.make(stage, world);
  }
  refuse(unknown_name("topology", stage.name, topology_names()));
}

}  // namespace ranvier
