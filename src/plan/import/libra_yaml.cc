// LIBRA's YAML files: network, cost model, communicator.
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <array>
#include <set>
#include <string>

#include "plan/import/text_file.h"
#include "ranvier/design_files.h"
#include "ranvier/error.h"
#include "ranvier/text.h"

namespace ranvier {
namespace {

class File {
 public:
  explicit File(const std::filesystem::path& path) : path_(path.string()) {
    const std::string text = plan::read_text(path);
    try {
      root_ = YAML::Load(text);
    } catch (const YAML::Exception& problem) {
      refuse(problem.mark, problem.msg);
    }
    if (!root_.IsMap()) refuse(root_.Mark(), "a map of keys to values is expected");
    refuse_repeated_keys(root_);
  }

  [[noreturn]] void refuse(const YAML::Mark& mark, const std::string& what) const {
    throw Error(ErrorKind::config, fmt::format("{}, line {}, column {}: {}", path_, mark.is_null() ? 1 : mark.line + 1,
                                               mark.is_null() ? 1 : mark.column + 1, what));
  }

  YAML::Node list(const std::string& key) const {
    const YAML::Node node = root_[key];
    if (!node) refuse(root_.Mark(), fmt::format("the key {} is missing", key));
    if (!node.IsSequence()) refuse(node.Mark(), fmt::format("{} is to be a list", key));
    return node;
  }

  template <class Value>
  Value read(const YAML::Node& node, const char* what) const {
    try {
      return node.as<Value>();
    } catch (const YAML::Exception&) {
      refuse(node.Mark(), fmt::format("{} is expected here", what));
    }
  }

  // An unknown key of the file is an error that names the nearest.
  template <std::size_t count>
  void allow_keys(const char* kind, const std::array<std::string_view, count>& names) const {
    for (const auto& entry : root_) choice(entry.first, kind, names);
  }

  // The number of the one of `names` that stands at `node`.
  template <std::size_t count>
  std::size_t choice(const YAML::Node& node, const char* kind, const std::array<std::string_view, count>& names) const {
    const auto word = read<std::string>(node, kind);
    for (std::size_t i = 0; i < count; ++i)
      if (names[i] == word) return i;
    refuse(node.Mark(), unknown_name(kind, plan::quotable(word), names));
  }

  const YAML::Node& root() const { return root_; }

 private:
  // Of which only the first would count, in silence. Aliases make of few lines any number of maps.
  void refuse_repeated_keys(const YAML::Node& map) {
    constexpr int most_maps = 10'000;
    if (++maps_ > most_maps) refuse(map.Mark(), fmt::format("the file has more than {} maps", most_maps));
    std::set<std::string> keys;
    for (const auto& entry : map) {
      if (entry.first.IsScalar() && !keys.insert(entry.first.Scalar()).second)
        refuse(entry.first.Mark(), "this key stands in the same map before; leave out one of them");
      if (entry.second.IsMap()) refuse_repeated_keys(entry.second);
    }
  }

  std::string path_;
  YAML::Node root_;
  int maps_ = 0;
};

constexpr std::array<std::string_view, 3> blocks{"Ring", "FullyConnected", "Switch"};
constexpr std::array<std::string_view, tier_count> tiers{"InterChiplet", "InterPackage", "InterNode", "InterPod"};

}  // namespace

NetworkShape read_libra_network(const std::filesystem::path& path) {
  const File file(path);
  file.allow_keys("key of a network", std::array<std::string_view, 3>{"Topology", "NpusCount", "CostDimension"});
  const auto topology = file.list("Topology");
  const auto counts = file.list("NpusCount");
  const auto costs = file.list("CostDimension");
  for (const auto& other : {counts, costs})
    if (other.size() != topology.size())
      file.refuse(other.Mark(),
                  fmt::format("this list has {} entries, and Topology has {}", other.size(), topology.size()));
  if (topology.size() == 0 || topology.size() > 16) file.refuse(topology.Mark(), "a network has 1 to 16 dimensions");
  NetworkShape shape;
  for (std::size_t i = 0; i < topology.size(); ++i) {
    const int size = file.read<int>(counts[i], "a whole number");
    if (size < 1 || shape.npus() * size > std::int64_t{1} << 31)
      file.refuse(counts[i].Mark(), "a dimension has from 1 NPU, and all have up to 2^31");
    shape.dimensions.push_back({.block = static_cast<Block>(file.choice(topology[i], "topology", blocks)),
                                .size = size,
                                .tier = static_cast<Tier>(file.choice(costs[i], "cost dimension", tiers))});
  }
  return shape;
}

CostTable read_libra_costs(const std::filesystem::path& path) {
  const File file(path);
  CostTable table;
  for (const auto& entry : file.root()) {
    TierCost& tier = table.tiers[file.choice(entry.first, "cost dimension", tiers)];
    if (!entry.second.IsMap()) file.refuse(entry.second.Mark(), "Link, Switch and Nic with their costs are expected");
    tier = {};
    for (const auto& part : entry.second) {
      // Of which LIBRA knows the last, and no network has to pay for it.
      constexpr std::array<std::string_view, 4> parts{"Link", "Switch", "Nic", "Npu"};
      double npu = 0;
      double* const fields[] = {&tier.link, &tier.switching, &tier.nic, &npu};
      const auto cost = file.read<double>(part.second, "a number");
      // As of --unit-cost.
      constexpr double least = 1e-6, most = 1e9;
      if (cost != 0 && !(cost >= least && cost <= most))
        file.refuse(part.second.Mark(), fmt::format("a cost is a number from {:g} to {:g}, or 0", least, most));
      *fields[file.choice(part.first, "part", parts)] = cost;
    }
  }
  return table;
}

Placement read_libra_communicator(const std::filesystem::path& path, const NetworkShape& shape) {
  const File file(path);
  file.allow_keys("key of a communicator", std::array<std::string_view, 3>{"Forward", "InputGrad", "WeightGrad"});
  Placement placement;
  constexpr std::pair<const char*, Role> keys[] = {
      {"Forward", Role::forward}, {"InputGrad", Role::input_gradient}, {"WeightGrad", Role::weight_gradient}};
  for (const auto& [key, role] : keys) {
    const auto list = file.list(key);
    if (list.size() != shape.dimensions.size())
      file.refuse(list.Mark(), fmt::format("{} has {} entries, and the network {} dimensions", key, list.size(),
                                           shape.dimensions.size()));
    for (std::size_t i = 0; i < list.size(); ++i) {
      const int size = file.read<int>(list[i], "a whole number");
      const auto& dimension = shape.dimensions[i];
      if (size == 0 || size < -1 || size > dimension.size)
        file.refuse(list[i].Mark(),
                    fmt::format("{} is neither -1 nor from 1 to the {} NPUs of its dimension", size, dimension.size));
      // Full connections and switches serve any of their NPUs alike, also where some are left over. A ring does not.
      if (size > 1 && dimension.block == Block::ring && dimension.size % size != 0)
        file.refuse(list[i].Mark(), fmt::format("groups of {} do not divide the ring of {} NPUs, and what is left over "
                                                "would stand between them; write a divisor of {}",
                                                size, dimension.size, dimension.size));
      placement.of(role).push_back(size < 0 ? 1 : size);
    }
  }
  return placement;
}

}  // namespace ranvier
