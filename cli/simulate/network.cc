#include "simulate/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ranvier/error.h"
#include "ranvier/measured_network.h"
#include "ranvier/text.h"

namespace ranvier::simulation {

void NetworkOptions::add_to(CLI::App& app) {
  app.add_option("--topology", topology_,
                 "star, ring, torus:4x4, mesh:4x4, fat_tree:4, fully_connected, or a file that probe wrote")
      ->type_name("SPEC|FILE");
  app.add_option("--link-rate", rate_, "of every link, each way; default 100Gbit")->type_name("RATE");
  app.add_option("--latency-us", latency_us_, "of every link; default 1")->type_name("US");
}

bool NetworkOptions::is_measured() const { return topology_.ends_with(".toml"); }

void NetworkOptions::check() {
  if (is_measured() && !rate_.empty())
    throw Error(ErrorKind::usage, fmt::format("{} says how fast its links are; leave out --link-rate", topology_));
  if (!rate_.empty()) {
    const auto parsed = parse_rate(rate_);
    if (!parsed)
      throw Error(ErrorKind::usage, fmt::format("--link-rate '{}' is not a rate; write 200Mbit or 25MB", rate_));
    speed_.bytes_per_second = *parsed;
  }
  if (!(latency_us_ >= 0 && latency_us_ <= 1e6))
    throw Error(ErrorKind::usage, fmt::format("--latency-us {} is not from 0 to 1000000", latency_us_));
  speed_.latency = std::chrono::nanoseconds(std::llround(latency_us_ * 1000));
}

Topology NetworkOptions::topology(Rank world) const {
  if (is_measured()) {
    Topology measured = measured_topology(read_measured_network(topology_));
    if (measured.world != world)
      throw Error(ErrorKind::usage,
                  fmt::format("{} is a network of {} ranks, not of {}", topology_, measured.world, world));
    return measured;
  }
  Topology topology = make_topology(topology_, world);
  for (Link& link : topology.links) link.speed = speed_;
  return topology;
}

std::vector<std::string_view> all_reduce_algorithms() {
  std::vector<std::string_view> names;
  for (const auto& algorithm : algorithms())
    if (std::ranges::count(algorithm.collectives, Collective::all_reduce) > 0) names.push_back(algorithm.name);
  return names;
}

}  // namespace ranvier::simulation
