// ranvier bench: times collectives as nccl-tests does, checks every result, and measures other libraries beside.
#include <fmt/format.h>

#include <cstdlib>

#include "bench/baselines.h"
#include "bench/communicator_peer.h"
#include "bench/communicator_world.h"
#include "bench/explain.h"
#include "bench/options.h"
#include "bench/peer.h"
#include "bench/process_world.h"
#include "bench/table.h"
#include "bench/tune.h"
#include "commands.h"
#include "launch.h"
#include "machine.h"
#include "meeting.h"
#include "output.h"
#include "programs.h"
#include "ranvier/error.h"

namespace ranvier::cli {
namespace {

using bench::Options;

CommunicatorOptions communicator_options(const Options& options) {
  CommunicatorOptions result;
  result.transport = options.transport;
  result.algorithm = options.algorithm;
  result.tuning = options.tuning;
  result.measure = options.measure;
  if (!options.topologies.empty()) result.topology = options.topologies.front();
  result.timeout = options.timeout;
  result.join_timeout = options.join_timeout;
  result.interface_address = options.interface_address;
  result.tcp_sockets = static_cast<int>(options.sockets);
  result.link_bytes_per_second = options.link_bytes_per_second;
  // A benchmark crowds its machine, and ranks that sleep while another library is measured are not dead.
  result.suspect_after = std::chrono::seconds(10);
  result.dead_after = std::chrono::seconds(30);
  return result;
}

// A table that --tuning takes, and above it the links that it was made for.
void print_probe(const Communicator& communicator) {
  const LinkModel& links = communicator.links();
  fmt::print("# {}, {} ranks{}: a message's way {:.3g} us, its work {:.3g} us, a byte {:.3g} ns, adding it {:.3g} ns\n",
             communicator.transport_name(), communicator.world(), links.crowded ? " that share cores" : "",
             links.latency * 1e6, links.message * 1e6, links.byte * 1e9, links.reduce * 1e9);
  fmt::print("{}", communicator.tuning().text());
}

// Coordinates worlds that it starts on this machine.
int run_coordinator(const Options& options) {
  const JsonFile file(options.json_file);
  const Rank ranks = *options.ranks;
  const bool pinned = options.pin.value_or(ranks <= usable_cores());

  std::vector<std::string> absent;
  std::vector<std::pair<std::string, Launch>> launches;
  for (const auto& name : options.baselines) {
    auto [unavailable, launch] = bench::baseline_launch(name, options, pinned);
    if (unavailable.empty())
      launches.emplace_back(name, std::move(launch));
    else if (options.every_baseline)
      absent.push_back(unavailable);
    else
      throw Error(ErrorKind::config, fmt::format("no baseline {}", unavailable));
  }
  Launch own{.count = ranks, .command = {this_program(), "bench"}};
  own.command.insert(own.command.end(), options.arguments.begin(), options.arguments.end());
  if (pinned) own.environment.emplace_back(bench::pin_variable, "1");

  if (options.probe) return run_workers(own);
  if (!options.tune_file.empty()) {
    const bench::TuningFile tuning(options.tune_file);
    bench::ProcessWorld tuned("ranvier", ranks, own, options.timeout);
    tuned.meet(options.join_timeout);
    return bench::tune(options, tuned, tuning);
  }
  bench::ProcessWorld ours("ranvier", ranks, own, options.timeout);
  std::vector<std::unique_ptr<bench::ProcessWorld>> baselines;
  for (auto& [name, launch] : launches)
    baselines.push_back(std::make_unique<bench::ProcessWorld>(name, ranks, std::move(launch), options.timeout));
  std::vector<bench::World*> worlds;
  ours.meet(options.join_timeout);
  for (const auto& baseline : baselines) {
    baseline->meet(options.join_timeout);
    worlds.push_back(baseline.get());
  }
  return bench::measure_all(options, ours, worlds, absent, file);
}

// One rank of a world that was started for it: by run_coordinator where there is a socket, else by a launcher.
int run_rank(const Options& options, const WorldPlace& place) {
  const char* socket = std::getenv(bench::socket_variable);
  const bool pinned = socket != nullptr ? std::getenv(bench::pin_variable) != nullptr
                                        : options.pin.value_or(place.local_world <= usable_cores());
  if (pinned) bench::pin_to_core(place.local_rank);
  const auto communicator = meet(place, communicator_options(options));
  if (options.probe) {
    if (place.rank == bench::root) print_probe(*communicator);
    return 0;
  }
  if (socket != nullptr)
    return bench::serve(*bench::communicator_peer(*communicator, options.buffers), bench::connect_lines(socket));

  if (place.rank != bench::root) {
    bench::serve_communicator(*communicator, options.buffers);
    return 0;
  }
  const auto world = bench::communicator_world(*communicator, options.buffers);
  if (!options.tune_file.empty()) return bench::tune(options, *world, bench::TuningFile(options.tune_file));
  const JsonFile file(options.json_file);
  return bench::measure_all(options, *world, {}, {}, file);
}

}  // namespace

int run_bench(const Arguments& arguments) {
  const auto options = bench::parse_options(arguments);
  if (!options) return 0;
  if (options->explain) return bench::explain(*options);
  // Ranks that only show their links have no coordinator to talk to.
  const bool is_started_rank = std::getenv(options->probe ? "RANVIER_RANK" : bench::socket_variable) != nullptr;
  if (options->ranks && !is_started_rank) return run_coordinator(*options);
  const auto place = world_from_environment();
  if (!place)
    throw Error(ErrorKind::usage,
                "nothing says how many ranks to measure; add --ranks 2, or start it with mpirun, torchrun "
                "or srun");
  return run_rank(*options, *place);
}

}  // namespace ranvier::cli
