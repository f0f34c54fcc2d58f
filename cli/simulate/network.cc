#include "simulate/network.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>

#include "ranvier/error.h"
#include "ranvier/text.h"

namespace ranvier::simulation {

NetworkOptions::NetworkOptions(const std::string& spec_or_file, LinkSpeed speed) : specs_{spec_or_file}, speed_(speed) {
  check();
}

void NetworkOptions::add_to(CLI::App& app, bool several) {
  auto* option = app.add_option("--topology", specs_,
                                std::string("star, ring, torus:4x4, mesh:4x4, fat_tree:4, fully_connected, or a file "
                                            "that probe wrote") +
                                    (several ? "; may be repeated, a file for each transport" : ""))
                     ->type_name("SPEC|FILE")
                     ->expected(1);
  if (several) option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--link-rate", rate_, "of every link, each way; default 100Gbit")->type_name("RATE");
  app.add_option("--latency-us", latency_us_, "of every link; default 1")->type_name("US");
}

std::optional<std::uint64_t> NetworkOptions::measured_ranks() const {
  if (measured_.empty()) return std::nullopt;
  return static_cast<std::uint64_t>(measured_.front().world);
}

void NetworkOptions::check() {
  const auto is_file = [](const std::string& spec) { return spec.ends_with(".toml"); };
  const bool is_measured = std::ranges::any_of(specs_, is_file);
  for (const auto& [flag, is_given] :
       {std::pair("--link-rate", !rate_.empty()), std::pair("--latency-us", latency_us_.has_value())})
    if (is_measured && is_given)
      throw Error(ErrorKind::usage, fmt::format("{} says how fast its links are; leave out {}",
                                                *std::ranges::find_if(specs_, is_file), flag));
  if (specs_.size() > 1 && !std::ranges::all_of(specs_, is_file))
    throw Error(ErrorKind::usage, "several --topology are files of ranvier probe, each over a transport of its own");
  if (!rate_.empty()) {
    const auto parsed = parse_rate(rate_);
    if (!parsed)
      throw Error(ErrorKind::usage, fmt::format("--link-rate '{}' is not a rate; write 200Mbit or 25MB", rate_));
    speed_.bytes_per_second = *parsed;
  }
  if (latency_us_) {
    if (!(*latency_us_ >= 0 && *latency_us_ <= 1e6))
      throw Error(ErrorKind::usage, fmt::format("--latency-us {} is not from 0 to 1000000", *latency_us_));
    speed_.latency = std::chrono::nanoseconds(std::llround(*latency_us_ * 1000));
  }
  if (!is_measured) return;
  std::vector<double> rates;
  for (const auto& spec : specs_) {
    measured_.push_back(read_measured_network(spec));
    if (measured_.back().world != measured_.front().world)
      throw Error(ErrorKind::usage, fmt::format("{} is of {} ranks and {} of {}; measure the same ranks",
                                                specs_.front(), measured_.front().world, spec, measured_.back().world));
    for (const auto& link : measured_.back().links) rates.push_back(link.gbit_in_collectives() * 1e9 / 8);
  }
  std::sort(rates.begin(), rates.end());
  if (!rates.empty()) speed_.bytes_per_second = rates[rates.size() / 2];
}

std::vector<cli::NamedFile> NetworkOptions::files() const {
  std::vector<cli::NamedFile> files;
  for (const auto& spec : specs_) files.push_back({"--topology", measured_.empty() ? "" : spec});
  return files;
}

SimulateOptions NetworkOptions::transfers(std::size_t number) const {
  // src/transport/tcp_transport.cc and tcp.cc: slices of 512 KiB, of which 4 MiB wait in the sender's socket.
  // What a socket is given goes into the interface's queue at once, before another socket gets its turn.
  if (measured_transport(number) == "tcp") return {.slice_bytes = 512 << 10, .buffered_slices = 8, .in_turn = true};
  return {};
}

Topology NetworkOptions::topology(Rank world, std::size_t number) const {
  if (!measured_.empty()) {
    Topology measured = measured_topology(measured_[number]);
    if (measured.world != world)
      throw Error(ErrorKind::usage,
                  fmt::format("{} is a network of {} ranks, not of {}", specs_[number], measured.world, world));
    return measured;
  }
  Topology topology = make_topology(specs_[number], world);
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
