// ranvier bench: times collectives as nccl-tests does, checks every result, and measures other libraries beside.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>

#include "bench/baselines.h"
#include "bench/communicator_peer.h"
#include "bench/communicator_world.h"
#include "bench/compare.h"
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

// Set for the ranks that the coordinator starts, which have its arguments.
constexpr const char* started_variable = "RANVIER_BENCH_STARTED";

CommunicatorOptions communicator_options(const Options& options, const WorldPlace& place) {
  CommunicatorOptions result;
  result.transport = options.transport;
  result.algorithm = options.algorithm;
  result.tuning = options.tuning;
  result.measure = options.measure;
  result.learn = options.learn;
  if (!options.topologies.empty()) result.topology = options.topologies.front();
  result.timeout = options.timeout;
  result.join_timeout = options.join_timeout;
  result.interface_address = options.interface_address;
  result.tcp_sockets = static_cast<int>(options.sockets);
  result.ports = options.ports;
  result.security = options.security;
  result.link_bytes_per_second = options.link_bytes_per_second;
  result.node = place.node;
  if (options.nodes)
    result.node = fmt::format("{}", place.local_rank * static_cast<Rank>(*options.nodes) / place.local_world);
  result.suspect_after = options.dead_after / 3;
  result.dead_after = options.dead_after;
  result.purpose = options.compare ? "ranvier bench --compare-transports"
                   : options.probe ? "ranvier bench --probe"
                                   : "ranvier bench";
  return result;
}

// A table that --tuning takes, and above it the links that it was made for.
void print_probe(const Communicator& communicator) {
  const LinkModel& links = communicator.links();
  fmt::print("# {}, {}{}: a message's way {:.3g} us, its work {:.3g} us, a byte {:.3g} ns, adding it {:.3g} ns",
             communicator.transport_name(), bench::in_words(communicator.world()),
             links.crowded ? " that share cores" : "", links.latency * 1e6, links.message * 1e6, links.byte * 1e9,
             links.reduce * 1e9);
  if (links.between > 0)
    fmt::print(", one over the line that a host's ranks share {:.3g} ns more", links.between * 1e9);
  if (!links.lines.empty()) fmt::print(", of which by rank's line {:.3g}", fmt::join(links.lines, " "));
  fmt::print("\n");
  fmt::print("{}", communicator.tuning().text());
}

// Ranks of transport mpi are started by mpirun, which tells them who they are; the rest by this program.
Launch own_launch(const Options& options, bool pinned) {
  Launch own{.count = *options.ranks, .command = {this_program(), "bench"}, .longest_stop = options.dead_after};
  if (parse_transport(options.transport).between == "mpi") {
    own.count = 1;
    own.term_to_kill = bench::mpirun_term_to_kill;
    std::vector<std::string> command = bench::mpirun_command(*options.ranks);
    if (command.empty())
      throw Error(ErrorKind::config, "transport mpi needs mpirun, which is not in PATH; install openmpi-bin");
    for (const char* word : {"--bind-to", "none", "env", "-u", "RANVIER_RANK", "-u", "RANVIER_WORLD"})
      command.emplace_back(word);
    own.command.insert(own.command.begin(), command.begin(), command.end());
  }
  own.command.insert(own.command.end(), options.arguments.begin(), options.arguments.end());
  own.environment.emplace_back(started_variable, "1");
  if (pinned) own.environment.emplace_back(bench::pin_variable, "1");
  return own;
}

// The ranks of a comparison that are started here find one of them in their environment, and do not get here.
void refuse_transport(const Options& options) {
  if (options.transport != "auto")
    throw Error(ErrorKind::usage,
                "--compare-transports measures all of them; leave out --transport (RANVIER_TRANSPORT)");
}

// Why that transport cannot be compared; empty if it can.
std::string absence_of(std::string_view name, const SecurityOptions& security) {
  if (std::string missing = missing_transport(parse_transport(name).between); !missing.empty()) return missing;
  if (name == "grpc" && (!security.key_file.empty() || (security.encrypt_everywhere && security.certificate.empty())))
    return "it encrypts by certificates only; name them in --certificate, --private-key and --authority";
  return {};
}

// Every transport of this build. The ranks read from their environment which one is theirs.
int run_comparison(Options options, bool pinned) {
  refuse_transport(options);
  const JsonFile file(options.json_file);
  std::optional<Error> first_problem;
  std::vector<bench::Compared> all;
  for (const std::string& name : bench::compared_transports()) {
    bench::Compared& each = all.emplace_back(bench::Compared{.transport = name});
    each.absent = absence_of(name, options.security);
    if (name == "mpi" && bench::mpirun_command(1).empty()) each.absent = "mpirun is not in PATH; install openmpi-bin";
    if (!each.absent.empty()) continue;
    options.transport = name;
    Launch launch = own_launch(options, pinned);
    launch.environment.emplace_back("RANVIER_TRANSPORT", name);
    auto world = std::make_unique<bench::ProcessWorld>(each.transport, *options.ranks, launch, options.timeout);
    try {
      world->meet(options.join_timeout, true);
    } catch (const Error& problem) {
      if (!first_problem) first_problem = problem;
      each.absent = problem.what();
      continue;
    }
    each.world = std::move(world);
  }
  const auto is_here = [](const bench::Compared& each) { return each.world != nullptr; };
  if (first_problem && std::ranges::none_of(all, is_here)) throw *first_problem;
  options.transport = "auto";
  return bench::compare_transports(options, *options.ranks, "on this machine", all, file);
}

// The sentence of the first rank that has one, on all ranks; empty if none has.
std::string reason_of_any(Communicator& control, const std::string& own) {
  std::array<std::int64_t, 1> who{own.empty() ? control.world() : control.rank()};
  control.all_reduce(who, {.op = ReduceOp::min});
  if (who[0] == control.world()) return {};
  std::array<std::uint8_t, 1024> text{};
  std::copy_n(own.begin(), std::min(own.size(), text.size() - 1), text.begin());
  control.broadcast(text, static_cast<Rank>(who[0]));
  return {text.begin(), std::find(text.begin(), text.end(), 0)};
}

// Calls `act`, and what ends it here is told to all ranks of `control`.
template <class Act>
int telling_others(Communicator& control, const Act& act) {
  try {
    return act();
  } catch (const std::exception& why) {
    control.abort(words_of(why));  // no news to the others where it came from them
    throw;
  }
}

// Every transport between ranks that a launcher started: each rank has a communicator of every one, and what is to be
// measured next goes over one more.
int compare_as_rank(const Options& options, const WorldPlace& place) {
  CommunicatorOptions plain = communicator_options(options, place);
  plain.transport = "tcp";
  plain.algorithm = "auto";
  plain.measure = plain.learn = false;
  const auto control = meet(place, plain);
  std::vector<bench::Compared> all;
  std::vector<std::unique_ptr<Communicator>> met;
  for (const std::string& name : bench::compared_transports()) {
    std::string absent = absence_of(name, options.security);
    if (name == "shm" && place.local_world < place.world) absent = "its ranks share a host, and these do not";
    std::unique_ptr<Communicator> communicator;
    if (absent = reason_of_any(*control, absent); absent.empty()) {
      CommunicatorOptions measured = communicator_options(options, place);
      measured.transport = name;
      try {
        communicator = meet(place, measured, name);
      } catch (const Error& problem) {
        absent = problem.what();
      }
      absent = reason_of_any(*control, absent);
    }
    all.push_back({.transport = name, .absent = absent});
    if (absent.empty()) met.push_back(std::move(communicator));
  }

  return telling_others(*control, [&] {
    if (place.rank != bench::first_rank) {
      std::vector<Communicator*> served;
      for (const auto& each : met) served.push_back(each.get());
      bench::serve_communicators(*control, served, options.buffers);
      return 0;
    }
    const bench::Dismissal dismissal(*control);
    std::size_t number = 0;
    for (bench::Compared& each : all) {
      if (!each.absent.empty()) continue;
      each.world = bench::communicator_world(*control, *met[number], options.buffers, number);
      ++number;
    }
    const auto where = place.local_world == place.world ? "on one host" : "on several hosts";
    return bench::compare_transports(options, place.world, where, all, JsonFile(options.json_file));
  });
}

// Coordinates worlds that it starts on this machine.
int run_coordinator(const Options& options) {
  const Rank ranks = *options.ranks;
  const bool pinned = options.pin.value_or(ranks <= usable_cores());
  if (options.compare) return run_comparison(options, pinned);
  const JsonFile file(options.json_file);

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
  const Launch own = own_launch(options, pinned);
  if (options.probe) return run_workers(own);
  if (!options.tune_file.empty()) {
    const bench::TuningFile tuning(options.tune_file);
    bench::ProcessWorld tuned("ranvier", ranks, own, options.timeout);
    tuned.meet(options.join_timeout, true);
    return bench::tune(options, tuned, tuning);
  }
  bench::ProcessWorld ours("ranvier", ranks, own, options.timeout);
  std::vector<std::unique_ptr<bench::ProcessWorld>> baselines;
  for (auto& [name, launch] : launches)
    baselines.push_back(std::make_unique<bench::ProcessWorld>(name, ranks, std::move(launch), options.timeout));
  std::vector<bench::World*> worlds;
  ours.meet(options.join_timeout, true);
  for (const auto& baseline : baselines) {
    baseline->meet(options.join_timeout, false);
    worlds.push_back(baseline.get());
  }
  return bench::measure_all(options, ours, worlds, absent, file);
}

// Null where a coordinator, who speaks for all ranks, has been told why they cannot meet.
std::unique_ptr<Communicator> meet_or_tell(const WorldPlace& place, const CommunicatorOptions& options,
                                           const char* coordinator) {
  try {
    return meet(place, options);
  } catch (const Error& problem) {
    if (coordinator == nullptr) throw;
    bench::connect_lines(coordinator).write(bench::failure_line(problem));
    return nullptr;
  }
}

// One rank of a world that was started for it: by run_coordinator where there is a socket, else by a launcher.
int run_rank(const Options& options, const WorldPlace& place) {
  const char* socket = std::getenv(bench::socket_variable);
  const bool pinned = socket != nullptr ? std::getenv(bench::pin_variable) != nullptr
                                        : options.pin.value_or(place.local_world <= usable_cores());
  if (pinned) bench::pin_to_core(place.local_rank);
  if (options.compare && socket == nullptr) return compare_as_rank(options, place);
  const auto communicator = meet_or_tell(place, communicator_options(options, place), socket);
  if (!communicator) return 1;
  if (options.probe) {
    if (place.rank == bench::first_rank) print_probe(*communicator);
    return 0;
  }
  if (socket != nullptr)
    return bench::serve(*bench::communicator_peer(*communicator, options.buffers), bench::connect_lines(socket));

  return telling_others(*communicator, [&] {
    if (place.rank != bench::first_rank) {
      Communicator* const measured = communicator.get();
      bench::serve_communicators(*communicator, {&measured, 1}, options.buffers);
      return 0;
    }
    const bench::Dismissal dismissal(*communicator);
    const auto world = bench::communicator_world(*communicator, *communicator, options.buffers);
    if (!options.tune_file.empty()) return bench::tune(options, *world, bench::TuningFile(options.tune_file));
    const JsonFile file(options.json_file);
    return bench::measure_all(options, *world, {}, {}, file);
  });
}

// Of whoever is to be a rank of a job that something else started; none where nothing says so rightly.
std::optional<WorldPlace> place_in_job() {
  if (std::getenv(started_variable) != nullptr) return std::nullopt;
  try {
    return world_from_environment();
  } catch (const Error&) {  // which is said where it matters
    return std::nullopt;
  }
}

// What can be found out before the ranks meet.
std::optional<Options> options_of_rank(const Arguments& arguments) {
  auto options = bench::parse_options(arguments);
  const auto place = place_in_job();
  if (!options || options->explain || !place) return options;
  if (options->ranks && place->world > 1) refuse_to_start("--ranks", *place);
  if (options->compare) refuse_transport(*options);
  return options;
}

}  // namespace

int run_bench(const Arguments& arguments) {
  std::optional<Options> options;
  try {
    options = options_of_rank(arguments);
  } catch (const Error& why) {
    return refuse_to_meet("ranvier bench", why, [&](const WorldPlace& place) { decline(place, why); });
  }
  if (!options) return 0;
  if (options->explain) return bench::explain(*options);
  if (options->ranks && std::getenv(started_variable) == nullptr) return run_coordinator(*options);
  const auto place = world_from_environment();
  if (!place)
    throw Error(ErrorKind::usage,
                "nothing says how many ranks to measure; add --ranks 2, or start it with mpirun, torchrun "
                "or srun");
  return run_rank(*options, *place);
}

}  // namespace ranvier::cli
