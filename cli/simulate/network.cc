#include "simulate/network.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <map>

#include "ranvier/cost.h"
#include "ranvier/error.h"
#include "ranvier/network.h"
#include "ranvier/text.h"

namespace ranvier::simulation {
namespace {

std::vector<std::string> between_commas(const std::string& words) {
  std::vector<std::string> list;
  for (std::size_t at = 0; at <= words.size();) {
    const auto end = std::min(words.find(',', at), words.size());
    list.push_back(words.substr(at, end - at));
    at = end + 1;
  }
  return list;
}

double rate_of(const std::string& words) {
  return cli::link_rate_of(words, ", or one for each dimension: 300GB,10Gbit");
}

std::chrono::nanoseconds latency_of(const std::string& words) {
  const auto us = parse_number<double>(words);
  if (!us || !(*us >= 0 && *us <= 1e6))
    throw Error(ErrorKind::usage, fmt::format("--latency-us {} is not from 0 to 1000000", words));
  return std::chrono::nanoseconds(std::llround(*us * 1000));
}

// "torus:4x4", or a shape of `ranvier design`: "RI(4)_SW(8)".
Topology made(const std::string& spec, Rank world) {
  if (!names_a_shape(spec)) {
    cli::require_name_in_front("topology", spec, topology_names(),
                               "a shape such as RI(4)_SW(8), or a file of ranvier probe (.toml)");
    return make_topology(spec, world);
  }
  const NetworkShape shape = parse_network(spec);
  if (shape.npus() != world)
    throw Error(ErrorKind::usage,
                fmt::format("the dimensions of {} multiply to {} ranks, and this world has {}; give as "
                            "many by --world, or other dimensions",
                            spec, shape.npus(), world));
  return topology_of(shape, {});
}

}  // namespace

NetworkOptions::NetworkOptions(const std::string& spec_or_file, LinkSpeed speed)
    : specs_{spec_or_file}, speeds_{speed} {
  check();
}

void NetworkOptions::add_to(CLI::App& app, bool several) {
  auto* option =
      app.add_option(
             "--topology", specs_,
             std::string(
                 "star, ring, torus:4x4, mesh:4x4, fat_tree:4, fully_connected, RI(4)_SW(8) as of design, or a file "
                 "that probe wrote") +
                 (several ? "; may be repeated, a file for each transport" : ""))
          ->type_name("SPEC|FILE")
          ->expected(1);
  if (several) option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  const std::string by_dimension = several ? "" : ", or one for each dimension, of a tree from the ranks up";
  // As of a shell whose variable is not set.
  const auto names_some = [](const std::string& word) {
    return word.empty() ? std::string("is empty; write a number, or leave it out") : std::string();
  };
  app.add_option("--link-rate", rates_, "of every link, each way" + by_dimension + "; default 100Gbit")
      ->type_name(several ? "RATE" : "RATE,…")
      ->check(names_some);
  app.add_option("--latency-us", latencies_us_, "of every link" + by_dimension + "; default 1")
      ->type_name(several ? "US" : "US,…")
      ->check(names_some);
}

std::optional<std::uint64_t> NetworkOptions::measured_ranks() const {
  if (measured_.empty()) return std::nullopt;
  return static_cast<std::uint64_t>(measured_.front().world);
}

void NetworkOptions::check() {
  const auto is_file = [](const std::string& spec) { return spec.ends_with(".toml"); };
  const bool is_measured = std::ranges::any_of(specs_, is_file);
  for (const auto& [flag, is_given] :
       {std::pair("--link-rate", !rates_.empty()), std::pair("--latency-us", !latencies_us_.empty())})
    if (is_measured && is_given)
      throw Error(ErrorKind::usage, fmt::format("{} says how fast its links are; leave out {}",
                                                *std::ranges::find_if(specs_, is_file), flag));
  if (specs_.size() > 1 && !std::ranges::all_of(specs_, is_file))
    throw Error(ErrorKind::usage, "several --topology are files of ranvier probe, each over a transport of its own");
  const auto rates = rates_.empty() ? std::vector<std::string>{} : between_commas(rates_);
  const auto latencies = latencies_us_.empty() ? std::vector<std::string>{} : between_commas(latencies_us_);
  speeds_.resize(std::max({speeds_.size(), rates.size(), latencies.size()}), speeds_.front());
  for (std::size_t i = 0; i < speeds_.size(); ++i) {
    if (!rates.empty()) speeds_[i].bytes_per_second = rate_of(rates[std::min(i, rates.size() - 1)]);
    if (!latencies.empty()) speeds_[i].latency = latency_of(latencies[std::min(i, latencies.size() - 1)]);
  }
  if (!is_measured) return;
  std::vector<double> measured_rates;
  std::map<std::string, std::string> over;  // each transport: the file
  for (const auto& spec : specs_) {
    measured_.push_back(read_measured_network(spec));
    const std::string& transport = measured_.back().transport;
    if (specs_.size() > 1 && transport.empty())
      throw Error(ErrorKind::usage,
                  fmt::format("{} does not say over which transport it was measured, by which several "
                              "--topology differ; add a line such as transport = \"tcp\" to it",
                              spec));
    if (const auto [other, is_new] = over.try_emplace(transport, spec); !is_new)
      throw Error(ErrorKind::usage, fmt::format("{} and {} were both measured over {}; give one of them, or measure "
                                                "each over a transport of its own",
                                                other->second, spec, transport));
    if (measured_.back().world != measured_.front().world)
      throw Error(ErrorKind::usage, fmt::format("{} is of {} ranks and {} of {}; measure the same ranks",
                                                specs_.front(), measured_.front().world, spec, measured_.back().world));
    for (const auto& link : measured_.back().links) measured_rates.push_back(link.gbit_in_collectives() * 1e9 / 8);
  }
  std::ranges::sort(measured_rates);
  if (!measured_rates.empty()) speeds_.front().bytes_per_second = measured_rates[measured_rates.size() / 2];
}

std::vector<cli::NamedFile> NetworkOptions::files() const {
  std::vector<cli::NamedFile> files;
  for (const auto& spec : specs_) files.push_back({"--topology", measured_.empty() ? "" : spec});
  return files;
}

SimulateOptions NetworkOptions::transfers(std::size_t number) const {
  if (measured_transport(number) != "tcp") return {};
  // src/transport/tcp_transport.cc and tcp_door.h: slices of 512 KiB where links are fast, and 4 MiB of them wait in
  // the sender's socket. What a socket is given goes into the interface's queue at once, before another socket gets its
  // turn. A connection has so many slices under way at most: on lines of 200 Mbit/s bbr had 150 to 250 KB, and
  // predictions differ by 2 % at most from 10 slices to 40.
  constexpr std::size_t slice = 512 << 10, socket = 4 << 20, window_slices = 16;
  const auto rate = [](const MeasuredLink& link) { return link.gbit_in_collectives() * 1e9 / 8; };
  const auto& links = measured_[number].links;
  SimulateOptions options{.slice_bytes = slice, .in_turn = true};
  if (!links.empty()) {
    const double seconds_per_byte = 1 / rate(*std::ranges::min_element(links, {}, rate));
    const double latency = std::ranges::max_element(links, {}, &MeasuredLink::latency_us)->latency_us * 1e-6;
    options.slice_bytes = slice_for(seconds_per_byte, slice);
    options.ahead_bytes = ahead_for(latency, seconds_per_byte, slice);
    options.lead_bytes = lead_for(latency, seconds_per_byte);
  }
  options.buffered_slices = socket / options.slice_bytes;
  options.window_bytes = window_slices * options.slice_bytes;
  return options;
}

Topology NetworkOptions::topology(Rank world, std::size_t number) const {
  if (!measured_.empty()) {
    Topology measured = measured_topology(measured_[number]);
    if (measured.world != world)
      throw Error(
          ErrorKind::usage,
          fmt::format(
              "{} is a network of {} ranks, not of {}; leave out --world, or measure as many with ranvier probe",
              specs_[number], measured.world, world));
    return measured;
  }
  Topology topology = made(specs_[number], world);
  std::size_t dimensions = 1;
  for (Link& link : topology.links) {
    const auto dimension = static_cast<std::size_t>(link.dimension);
    dimensions = std::max(dimensions, dimension + 1);
    link.speed = speeds_[std::min(dimension, speeds_.size() - 1)];
  }
  if (speeds_.size() > 1 && speeds_.size() != dimensions)
    throw Error(
        ErrorKind::usage,
        fmt::format("links are given {} speeds, and {} of {} ranks has {} {}; give as many, or one for all",
                    speeds_.size(), topology.name, world, dimensions, dimensions == 1 ? "dimension" : "dimensions"));
  return topology;
}

const MeasuredLink* NetworkOptions::most_lossy(std::size_t number) const {
  if (measured_.empty() || measured_[number].links.empty()) return nullptr;
  const auto& link = *std::ranges::max_element(measured_[number].links, {}, &MeasuredLink::loss);
  return link.loss > 0 ? &link : nullptr;
}

std::string loss_text(const MeasuredLink& link) {
  return fmt::format(
      "up to {:.3g} % of packets, from rank {} to rank {}: counted as far as the measured rates have it "
      "in them; that a short message may wait for a packet to be sent again is not",
      link.loss * 100, link.from, link.to);
}

std::vector<std::string_view> all_reduce_algorithms() {
  std::vector<std::string_view> names;
  for (const auto& algorithm : algorithms())
    if (std::ranges::count(algorithm.collectives, Collective::all_reduce) > 0) names.push_back(algorithm.name);
  return names;
}

}  // namespace ranvier::simulation
