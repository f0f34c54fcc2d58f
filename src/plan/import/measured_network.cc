#include "ranvier/measured_network.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "plan/import/toml_file.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

constexpr std::int64_t most_measured_ranks = 4096;
constexpr double bytes_of_gbit = 1e9 / 8;

// What each rank sends to and receives from the peer with which it is fastest.
class EndRates {
 public:
  template <class RateOf>
  EndRates(const MeasuredNetwork& network, RateOf rate_of)
      : out_(static_cast<std::size_t>(network.world)), in_(out_.size()) {
    for (const MeasuredLink& link : network.links) {
      const double rate = rate_of(link);
      out_[static_cast<std::size_t>(link.from)] = std::max(out(link.from), rate);
      in_[static_cast<std::size_t>(link.to)] = std::max(in(link.to), rate);
    }
  }
  double out(Rank rank) const { return out_[static_cast<std::size_t>(rank)]; }
  double in(Rank rank) const { return in_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<double> out_;
  std::vector<double> in_;
};

// Whether it leads from one of them to the next, or from the last to the first.
bool is_of_ring(const MeasuredLink& link, std::span<const Rank> ranks) {
  const auto from = std::ranges::find(ranks, link.from);
  return from != ranks.end() && link.to == (from + 1 == ranks.end() ? ranks.front() : from[1]);
}

class NetworkReader {
 public:
  explicit NetworkReader(const std::filesystem::path& path) : name_(path.string()), file_(path) {}

  MeasuredNetwork read() const {
    const auto& root = file_.root();
    file_.allow_keys(root, "a network", {"world", "transport", "loss_by", "link", "machine"});
    MeasuredNetwork network;
    network.world = static_cast<Rank>(file_.whole(file_.need(root, "world", "a network"), 1, most_measured_ranks));
    network.transport = file_.transport(root, "");
    network.loss_by = file_.text(root, "loss_by", "");
    const auto world = static_cast<std::size_t>(network.world);
    std::vector<bool> is_there(world * world);
    for (const auto& each : file_.list(root, "link")) {
      const toml::table& table = file_.table(each, "a link");
      network.links.push_back(link(table, network.world));
      const Rank from = network.links.back().from;
      const Rank to = network.links.back().to;
      auto seen = is_there[static_cast<std::size_t>(from) * world + static_cast<std::size_t>(to)];
      if (seen) file_.refuse(table.source(), fmt::format("the link from rank {} to rank {} is there twice", from, to));
      seen = true;
    }
    check_all_pairs(network.world, is_there);
    std::vector<bool> is_placed(world);
    if (root.contains("machine"))
      for (const auto& each : file_.list(root, "machine"))
        network.machines.push_back(machine(file_.table(each, "a machine"), is_placed));
    return network;
  }

 private:
  // One that saves up more than any vector has would have no rate.
  double burst(const toml::table& table) const {
    constexpr double most_bytes = 1e15;
    const auto* node = table.get("burst_bytes");
    return node == nullptr ? 0 : file_.amount(*node, most_bytes);
  }

  // 0: not measured.
  double both_ways(const toml::table& table) const {
    const auto* node = table.get("gbit_both_ways");
    return node != nullptr && file_.amount(*node) > 0 ? file_.rate(*node) : 0;
  }

  MeasuredLink link(const toml::table& table, Rank world) const {
    constexpr std::string_view what = "a link";
    file_.allow_keys(table, what,
                     {"from", "to", "latency_us", "latency_spread_us", "gbit_per_second", "gbit_spread", "burst_bytes",
                      "gbit_both_ways", "packets", "loss", "loss_least", "loss_most"});
    const auto rank = [&](std::string_view key) {
      return static_cast<Rank>(file_.whole(file_.need(table, key, what), 0, world - 1));
    };
    MeasuredLink result{.from = rank("from"),
                        .to = rank("to"),
                        .latency_us = file_.latency_us(file_.need(table, "latency_us", what)),
                        .latency_spread_us = file_.amount(table, "latency_spread_us", 0),
                        .gbit_spread = file_.amount(table, "gbit_spread", 0),
                        .burst_bytes = burst(table),
                        .gbit_both_ways = both_ways(table),
                        .packets = file_.amount(table, "packets", 0),
                        .loss = file_.amount(table, "loss", 0),
                        .loss_least = file_.amount(table, "loss_least", 0),
                        .loss_most = file_.amount(table, "loss_most", 0)};
    const toml::node& rate = file_.need(table, "gbit_per_second", what);
    result.gbit_per_second = file_.rate(rate);
    if (result.loss > 1 || result.loss_least > result.loss || result.loss > result.loss_most || result.loss_most > 1)
      file_.refuse(table.source(), fmt::format("loss {} from {} to {} is no share of 1 between its limits", result.loss,
                                               result.loss_least, result.loss_most));
    if (result.from == result.to)
      file_.refuse(table.source(), fmt::format("rank {} has a link to itself", result.from));
    return result;
  }

  MeasuredMachine machine(const toml::table& table, std::vector<bool>& is_placed) const {
    constexpr std::string_view what = "a machine";
    file_.allow_keys(table, what, {"ranks", "gbit_together"});
    MeasuredMachine result;
    for (const auto& each : file_.list(table, "ranks")) {
      const auto rank = static_cast<Rank>(file_.whole(each, 0, static_cast<std::int64_t>(is_placed.size()) - 1));
      auto placed = is_placed[static_cast<std::size_t>(rank)];
      if (placed) file_.refuse(each.source(), fmt::format("rank {} is on a machine already", rank));
      placed = true;
      result.ranks.push_back(rank);
    }
    if (result.ranks.size() < 2 || !std::ranges::is_sorted(result.ranks))
      file_.refuse(table.source(), "a machine is of two ranks or more, the lowest first");
    result.gbit_together = file_.rate(file_.need(table, "gbit_together", what));
    return result;
  }

  void check_all_pairs(Rank world, const std::vector<bool>& is_there) const {
    std::size_t pair = 0;
    for (Rank from = 0; from < world; ++from)
      for (Rank to = 0; to < world; ++to)
        if (!is_there[pair++] && from != to)
          throw Error(
              ErrorKind::config,
              fmt::format("{}: the link from rank {} to rank {} is missing; is the file whole?", name_, from, to));
  }

  std::string name_;
  plan::TomlFile file_;
};

}  // namespace

std::string to_toml(const MeasuredNetwork& network) {
  std::string text = fmt::format(
      "# Written by ranvier probe; ranvier simulate and plan read it as --topology.\nworld = {}\n"
      "transport = \"{}\"\n",
      network.world, network.transport);
  if (!network.loss_by.empty()) text += fmt::format("loss_by = \"{}\"\n", network.loss_by);
  for (const MeasuredLink& link : network.links) {
    text += fmt::format(
        "\n[[link]]\nfrom = {}\nto = {}\nlatency_us = {:.3f}\nlatency_spread_us = {:.3f}\ngbit_per_second = {:.6f}\n"
        "gbit_spread = {:.6f}\nburst_bytes = {:.0f}\ngbit_both_ways = {:.6f}\n",
        link.from, link.to, link.latency_us, link.latency_spread_us, link.gbit_per_second, link.gbit_spread,
        link.burst_bytes, link.gbit_both_ways);
    if (link.packets > 0)
      text += fmt::format("packets = {:.0f}\nloss = {}\nloss_least = {}\nloss_most = {}\n", link.packets, link.loss,
                          link.loss_least, link.loss_most);
  }
  for (const MeasuredMachine& machine : network.machines)
    text += fmt::format("\n[[machine]]\nranks = [{}]\ngbit_together = {:.6f}\n", fmt::join(machine.ranks, ", "),
                        machine.gbit_together);
  return text;
}

void set_loss(MeasuredLink& link, double packets, double lost) {
  link.packets = packets;
  if (!(packets > 0)) return;
  constexpr double deviations = 1.959964;  // of 95 %
  const double share = std::min(1.0, lost / packets);
  const double more = deviations * deviations / packets;
  const double middle = (share + more / 2) / (1 + more);
  const double half = deviations / (1 + more) * std::sqrt(share * (1 - share) / packets + more / (4 * packets));
  link.loss = share;
  link.loss_least = std::clamp(middle - half, 0.0, share);
  link.loss_most = std::clamp(middle + half, share, 1.0);
}

std::vector<std::pair<Rank, Rank>> doubtful_pairs(const MeasuredNetwork& network) {
  constexpr double enough = 0.9;
  constexpr double enough_both_ways = 0.95;  // acknowledgements of what comes take some two hundredths
  using Rate = double MeasuredLink::*;
  std::set<std::pair<Rank, Rank>> pairs;
  for (const Rate rate : {&MeasuredLink::gbit_per_second, &MeasuredLink::gbit_both_ways}) {
    const EndRates ends(network, [rate](const MeasuredLink& link) { return link.*rate; });
    for (const MeasuredLink& link : network.links)
      if (link.*rate < enough * std::min(ends.out(link.from), ends.in(link.to)))
        pairs.insert(std::minmax(link.from, link.to));
  }
  for (const MeasuredLink& link : network.links)
    if (link.gbit_both_ways > 0 && link.gbit_both_ways < enough_both_ways * link.gbit_per_second)
      pairs.insert(std::minmax(link.from, link.to));
  return {pairs.begin(), pairs.end()};
}

MeasuredLink better_of(const MeasuredLink& one, const MeasuredLink& other) {
  MeasuredLink best = other.gbit_per_second > one.gbit_per_second ? other : one;
  best.gbit_both_ways = std::max(one.gbit_both_ways, other.gbit_both_ways);
  set_loss(best, one.packets + other.packets, one.loss * one.packets + other.loss * other.packets);
  return best;
}

double ring_gbit(const MeasuredNetwork& network, std::span<const Rank> ranks) {
  double least = std::numeric_limits<double>::infinity();
  for (const MeasuredLink& link : network.links)
    if (is_of_ring(link, ranks)) least = std::min(least, link.gbit_in_collectives());
  return least * static_cast<double>(ranks.size());
}

void raise_by_rings(MeasuredNetwork& network) {
  for (const MeasuredMachine& machine : network.machines)
    for (MeasuredLink& link : network.links) {
      if (!is_of_ring(link, machine.ranks)) continue;
      const double share = machine.gbit_together / static_cast<double>(machine.ranks.size());
      link.gbit_both_ways = std::max(link.gbit_both_ways, std::min(share, link.gbit_per_second));
    }
}

MeasuredNetwork read_measured_network(const std::filesystem::path& path) { return NetworkReader(path).read(); }

Topology measured_topology(const MeasuredNetwork& network) {
  const auto world = static_cast<std::size_t>(network.world);
  const auto pair = [world](Rank from, Rank to) {
    return static_cast<std::size_t>(from) * world + static_cast<std::size_t>(to);
  };
  Topology topology;
  topology.name = "measured";
  topology.world = network.world;
  topology.switches = 2 * network.world;
  const EndRates ends(network, [](const MeasuredLink& link) { return link.gbit_in_collectives() * bytes_of_gbit; });
  std::vector<double> bursts;
  for (const MeasuredLink& link : network.links) bursts.push_back(link.burst_bytes);
  std::sort(bursts.begin(), bursts.end());
  const double burst = bursts.empty() ? 0 : bursts[bursts.size() / 2];
  // Rank r sends over link r to vertex world + r, and receives over link world + r from vertex 2 world + r.
  const std::chrono::nanoseconds none{0};
  for (Rank rank = 0; rank < network.world; ++rank)
    topology.links.push_back({rank, network.world + rank, {ends.out(rank), none, burst}});
  for (Rank rank = 0; rank < network.world; ++rank)
    topology.links.push_back({2 * network.world + rank, rank, {ends.in(rank), none, burst}});
  std::vector<LinkNumber> between(world * world, 0);
  for (const MeasuredLink& link : network.links) {
    between[pair(link.from, link.to)] = static_cast<LinkNumber>(topology.links.size());
    topology.links.push_back({network.world + link.from,
                              2 * network.world + link.to,
                              {link.gbit_in_collectives() * bytes_of_gbit,
                               std::chrono::nanoseconds(std::llround(link.latency_us * 1000)), burst}});
  }
  // The processors of a machine are a link from a vertex to itself, used by what its ranks send and what they receive.
  constexpr double enough = 0.75;  // one ring differs from the next by a tenth and more where cores are short
  std::vector<Path> processors(world);
  for (const MeasuredMachine& machine : network.machines) {
    if (machine.gbit_together >= enough * ring_gbit(network, machine.ranks)) continue;
    const Vertex vertex = network.world + topology.switches++;
    topology.names.emplace(vertex, fmt::format("processors of ranks {}", fmt::join(machine.ranks, ", ")));
    for (const Rank rank : machine.ranks)
      processors[static_cast<std::size_t>(rank)] = {static_cast<LinkNumber>(topology.links.size())};
    topology.links.push_back({vertex, vertex, {2 * machine.gbit_together * bytes_of_gbit, none, 0}});
  }
  topology.path = [between = std::move(between), processors = std::move(processors), pair, ranks = network.world](
                      Rank from, Rank to) -> Path {
    if (from == to) return {};
    Path path = processors[static_cast<std::size_t>(from)];
    path.insert(path.end(),
                {static_cast<LinkNumber>(from), between[pair(from, to)], static_cast<LinkNumber>(ranks + to)});
    for (const LinkNumber link : processors[static_cast<std::size_t>(to)]) path.push_back(link);
    return path;
  };
  return topology;
}

}  // namespace ranvier
