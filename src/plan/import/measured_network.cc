#include "ranvier/measured_network.h"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <algorithm>
#include <cmath>

#include "plan/import/text_file.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

constexpr std::int64_t most_ranks = 4096;

class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : file_(path.string()) {
    const std::string text = plan::read_text(path);
    try {
      root_ = toml::parse(text);
    } catch (const toml::parse_error& problem) {
      refuse(problem.source(), std::string(problem.description()));
    }
  }

  MeasuredNetwork read() const {
    MeasuredNetwork network;
    const auto* world = root_.get("world");
    if (world == nullptr) refuse(root_.source(), "the key world, the number of ranks, is missing");
    network.world = whole(*world, 1, most_ranks);
    network.transport = root_["transport"].value_or(std::string());
    if (const auto* links = root_["link"].as_array())
      for (const auto& each : *links) network.links.push_back(link(each, network.world));
    check_all_pairs(network);
    return network;
  }

 private:
  [[noreturn]] void refuse(const toml::source_region& where, const std::string& what) const {
    throw Error(ErrorKind::config, fmt::format("{}, line {}, column {}: {}", file_, std::max(1U, where.begin.line),
                                               std::max(1U, where.begin.column), what));
  }

  Rank whole(const toml::node& node, std::int64_t least, std::int64_t most) const {
    const auto number = node.value_exact<std::int64_t>();
    if (!number || *number < least || *number > most)
      refuse(node.source(), fmt::format("a whole number from {} to {} is expected here", least, most));
    return static_cast<Rank>(*number);
  }

  const toml::node& need(const toml::table& table, const char* key) const {
    const auto* node = table.get(key);
    if (node == nullptr) refuse(table.source(), fmt::format("the key {} is missing in this link", key));
    return *node;
  }

  double amount(const toml::node& node, bool positive) const {
    const auto number = node.value<double>();
    if (!number || !std::isfinite(*number) || *number < 0 || (positive && *number == 0))
      refuse(node.source(),
             positive ? "a number above 0 is expected here" : "a number that is at least 0 is expected here");
    return *number;
  }

  MeasuredLink link(const toml::node& node, Rank world) const {
    const auto* table = node.as_table();
    if (table == nullptr) refuse(node.source(), "a link is a table with from, to, latency_us and gbit_per_second");
    const auto optional = [&](const char* key) {
      const auto* found = table->get(key);
      return found == nullptr ? 0 : amount(*found, false);
    };
    MeasuredLink result{.from = whole(need(*table, "from"), 0, world - 1),
                        .to = whole(need(*table, "to"), 0, world - 1),
                        .latency_us = amount(need(*table, "latency_us"), false),
                        .latency_spread_us = optional("latency_spread_us"),
                        .gbit_per_second = amount(need(*table, "gbit_per_second"), true),
                        .gbit_spread = optional("gbit_spread")};
    if (result.from == result.to) refuse(node.source(), fmt::format("rank {} has a link to itself", result.from));
    return result;
  }

  void check_all_pairs(const MeasuredNetwork& network) const {
    std::vector<int> seen(static_cast<std::size_t>(network.world) * static_cast<std::size_t>(network.world));
    for (const MeasuredLink& each : network.links)
      ++seen[static_cast<std::size_t>(each.from) * static_cast<std::size_t>(network.world) +
             static_cast<std::size_t>(each.to)];
    for (Rank from = 0; from < network.world; ++from)
      for (Rank to = 0; to < network.world; ++to) {
        const int times = seen[static_cast<std::size_t>(from) * static_cast<std::size_t>(network.world) +
                               static_cast<std::size_t>(to)];
        if (from != to && times != 1)
          throw Error(ErrorKind::config,
                      fmt::format("{}: the link from rank {} to rank {} is there {} times instead of once", file_, from,
                                  to, times));
      }
  }

  std::string file_;
  toml::table root_;
};

}  // namespace

std::string to_toml(const MeasuredNetwork& network) {
  std::string text = fmt::format(
      "# Written by ranvier probe; ranvier simulate and plan read it as --topology.\nworld = {}\n"
      "transport = \"{}\"\n",
      network.world, network.transport);
  for (const MeasuredLink& link : network.links)
    text += fmt::format(
        "\n[[link]]\nfrom = {}\nto = {}\nlatency_us = {:.3f}\nlatency_spread_us = {:.3f}\ngbit_per_second = {:.6f}\n"
        "gbit_spread = {:.6f}\n",
        link.from, link.to, link.latency_us, link.latency_spread_us, link.gbit_per_second, link.gbit_spread);
  return text;
}

MeasuredNetwork read_measured_network(const std::filesystem::path& path) { return Reader(path).read(); }

Topology measured_topology(const MeasuredNetwork& network) {
  const auto world = static_cast<std::size_t>(network.world);
  const auto pair = [world](Rank from, Rank to) {
    return static_cast<std::size_t>(from) * world + static_cast<std::size_t>(to);
  };
  constexpr double bytes_of_gbit = 1e9 / 8;
  Topology topology;
  topology.name = "measured";
  topology.world = network.world;
  topology.switches = 2 * network.world;
  std::vector<double> out(world, 0);
  std::vector<double> in(world, 0);
  for (const MeasuredLink& link : network.links) {
    const double rate = link.gbit_per_second * bytes_of_gbit;
    out[static_cast<std::size_t>(link.from)] = std::max(out[static_cast<std::size_t>(link.from)], rate);
    in[static_cast<std::size_t>(link.to)] = std::max(in[static_cast<std::size_t>(link.to)], rate);
  }
  // Rank r sends over link r to vertex world + r, and receives over link world + r from vertex 2 world + r.
  const std::chrono::nanoseconds none{0};
  for (Rank rank = 0; rank < network.world; ++rank)
    topology.links.push_back({rank, network.world + rank, {out[static_cast<std::size_t>(rank)], none}});
  for (Rank rank = 0; rank < network.world; ++rank)
    topology.links.push_back({2 * network.world + rank, rank, {in[static_cast<std::size_t>(rank)], none}});
  std::vector<LinkNumber> between(world * world, 0);
  for (const MeasuredLink& link : network.links) {
    between[pair(link.from, link.to)] = static_cast<LinkNumber>(topology.links.size());
    topology.links.push_back(
        {network.world + link.from,
         2 * network.world + link.to,
         {link.gbit_per_second * bytes_of_gbit, std::chrono::nanoseconds(std::llround(link.latency_us * 1000))}});
  }
  topology.path = [between = std::move(between), pair, ranks = network.world](Rank from, Rank to) -> Path {
    if (from == to) return {};
    return {static_cast<LinkNumber>(from), between[pair(from, to)], static_cast<LinkNumber>(ranks + to)};
  };
  return topology;
}

}  // namespace ranvier
