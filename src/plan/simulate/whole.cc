// Every rank and every link as they are.
#include <map>
#include <utility>

#include "plan/simulate/instance.h"

namespace ranvier::plan {

Program program_of(const Job& job, Rank rank) {
  return compile(job.schedule, rank, even_layout(job.schedule, rank, job.count, job.element_bytes),
                 {.element_bytes = job.element_bytes,
                  .slice_bytes = job.options.slice_bytes,
                  .ahead_bytes = job.options.ahead_bytes,
                  .lead_bytes = job.options.lead_bytes});
}

std::vector<Hop> way(const Topology& topology, Rank from, Rank to) {
  std::vector<Hop> hops;
  for (const LinkNumber link : topology.path(from, to))
    hops.push_back({link, topology.carried ? topology.carried(from, to, link) : 1});
  return hops;
}

Instance whole(const Job& job) {
  Instance instance;
  const auto slowdown = [&](Rank rank) {
    const auto& all = job.options.slowdown;
    return static_cast<std::size_t>(rank) < all.size() ? all[static_cast<std::size_t>(rank)] : 1.0;
  };
  for (LinkNumber link = 0; link < job.topology.links.size(); ++link) {
    const Link& each = job.topology.links[link];
    double slower = 1;
    for (const Vertex end : {each.from, each.to})
      if (end < job.topology.world) slower = std::max(slower, slowdown(end));
    instance.links.push_back({.speed = {each.speed.bytes_per_second / 1e9 / slower, each.speed.burst_bytes},
                              .from = vertex_name(job.topology, each.from),
                              .to = vertex_name(job.topology, each.to),
                              .dimension = each.dimension});
  }
  std::map<std::pair<Rank, Rank>, std::uint32_t> numbers;
  const auto channel = [&](Rank from, Rank to) {
    const auto [found, added] = numbers.try_emplace({from, to}, static_cast<std::uint32_t>(numbers.size()));
    if (!added) return found->second;
    Instance::Channel made{.route = {}, .from = from, .to = to};
    const auto is_lost = [&](Vertex end) { return job.options.crash && job.options.crash->rank == end; };
    for (const auto& [link, part] : way(job.topology, from, to)) {
      made.crashes |= is_lost(job.topology.links[link].from) || is_lost(job.topology.links[link].to);
      made.route.push_back({link, part});
      made.latency_ns += static_cast<double>(job.topology.links[link].speed.latency.count());
    }
    instance.channels.push_back(std::move(made));
    return found->second;
  };
  for (Rank rank = 0; rank < job.schedule.world; ++rank) {
    Program program = program_of(job, rank);
    std::vector<std::uint32_t> sends;
    std::vector<std::uint32_t> receives;
    sends.reserve(program.sends.size());
    receives.reserve(program.receives.size());
    for (const Instruction& each : program.sends) sends.push_back(channel(rank, each.peer));
    for (const Instruction& each : program.receives) receives.push_back(each.peer < 0 ? 0 : channel(each.peer, rank));
    instance.programs.push_back(std::move(program));
    instance.send_channels.push_back(std::move(sends));
    instance.receive_channels.push_back(std::move(receives));
    instance.slowdown.push_back(slowdown(rank));
    instance.starts_ns.push_back(0);
  }
  return instance;
}

Instance repeated(Instance instance, std::size_t times) {
  for (std::size_t rank = 0; rank < instance.programs.size(); ++rank) {
    Program& program = instance.programs[rank];
    const auto again = [times](auto& list) {
      const auto once = list;
      for (std::size_t i = 1; i < times; ++i) list.insert(list.end(), once.begin(), once.end());
    };
    const auto sends = program.sends.size();
    const auto receives = program.receives.size();
    again(program.sends);
    again(program.receives);
    again(instance.send_channels[rank]);
    again(instance.receive_channels[rank]);
    for (std::size_t i = sends; i < program.sends.size(); ++i)
      program.sends[i].after += static_cast<std::uint32_t>(i / sends * receives);
    for (std::size_t i = receives; i < program.receives.size(); ++i)
      program.receives[i].after += static_cast<std::uint32_t>(i / receives * sends);
  }
  return instance;
}

Instance beside_itself(Instance instance, const SimulateOptions& options) {
  const Instance one = instance;
  const auto more = [](auto& list, const auto& of_one) { list.insert(list.end(), of_one.begin(), of_one.end()); };
  for (std::size_t lane = 1; lane < options.at_once; ++lane) {
    for (const double ns : one.starts_ns)
      instance.starts_ns.push_back(ns + static_cast<double>(lane) * options.apart_ns);
    const auto first = static_cast<std::uint32_t>(instance.channels.size());
    more(instance.programs, one.programs);
    more(instance.channels, one.channels);
    more(instance.slowdown, one.slowdown);
    for (auto lists : {&Instance::send_channels, &Instance::receive_channels})
      for (auto channels : one.*lists) {
        for (auto& channel : channels) channel += first;
        (instance.*lists).push_back(std::move(channels));
      }
  }
  return instance;
}

}  // namespace ranvier::plan
