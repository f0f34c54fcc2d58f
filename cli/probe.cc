// ranvier probe: latency and bandwidth between every two ranks, each way.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "bench/peer.h"
#include "commands.h"
#include "launch.h"
#include "machine.h"
#include "meeting.h"
#include "output.h"
#include "probe/machines.h"
#include "probe/pairs.h"
#include "ranvier/error.h"
#include "ranvier/measured_network.h"

namespace ranvier::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto probe_examples = R"(
Of ranks that a launcher started, rank 0's --bytes and --samples count for all.
Ranks measure in rounds of disjoint pairs: as many rounds as there are ranks. Latency is half of a round trip of four
bytes, bandwidth that of a few long messages, the median of the samples; of latency, and of what a link carries both ways at
once, it is the better quartile, since nothing makes them look better than they are, and who waits for a core worse. Spreads are
half of the distance between the quartiles. A pair that is slower than both of its ends are with others, or much slower both ways at once than one
way, is measured again, up to twice, and the best counts: of TCP's connections now and then one pauses for a moment (bbr does,
to see the path's own round trip), and who gets a core late finds less.
Ranks on one machine share its processors: those of each machine make an all_reduce by a ring, and where they get less than
the links between them carry, predictions have them share that.
A message after a rest shows whether links save up (token buckets do) and how much. What a link carries while as
much comes the other way is measured too, which is what collectives get of it. Loss is the share of a rank's packets that
went again while it measured: segments by the kernel's count (TCP_INFO), or packets by udp's own, with limits of 95 %
confidence. What TCP sends again without need counts, too.

Examples:
  ranvier probe --ranks 2 --transport tcp --output topology.toml
  mpirun -n 4 ranvier probe --output topology.toml
  ranvier simulate --bytes 100M --world 4 --topology topology.toml
)";

struct Settings {
  std::optional<std::uint64_t> ranks;
  std::string transport = "auto";
  std::size_t bytes = 4 << 20;
  std::uint64_t samples = 9;
  double link_bytes_per_second = 0;
  std::string interface_address;
  std::uint64_t sockets = 1;
  PortRange ports;
  SecurityOptions security;
  std::string output;
  std::string json_path;
};

struct Spread {
  double median = 0;
  double half = 0;  // of the distance between the quartiles, …
  double low = 0;   // … which these are
  double high = 0;
};

Spread spread_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double part) {
    return samples[static_cast<std::size_t>(part * static_cast<double>(samples.size() - 1))];
  };
  return {at(0.5), (at(0.75) - at(0.25)) / 2, at(0.25), at(0.75)};
}

constexpr std::size_t numbers = 8;  // of a link
constexpr int round_trips = 20;     // of a sample of latency
constexpr std::size_t short_part = 8;
constexpr int most_times_again = 2;  // that doubtful pairs are measured

// Both ends of a pair take turns in being the one that measures what it sends.
class Pair {
 public:
  Pair(Communicator& communicator, Rank peer, const Settings& settings)
      : communicator_(communicator),
        peer_(peer),
        settings_(settings),
        data_(settings.bytes / sizeof(float)),
        short_(data_.size() / short_part) {}

  // {latency us, its spread, Gbit/s, its spread, bytes at once after a rest}, of what this rank sends
  std::array<double, 5> measure() {
    for (int i = 0; i < round_trips / 4; ++i) round_trip(small_);  // warms up caches and windows
    round_trip(data_);
    std::vector<double> latencies;
    std::vector<double> rates;
    for (std::uint64_t i = 0; i < settings_.samples; ++i) {
      const double microseconds = std::chrono::duration<double, std::micro>(time([&] {
                                    for (int trip = 0; trip < round_trips; ++trip) round_trip(small_);
                                  })).count();
      latencies.push_back(microseconds / round_trips / 2);
    }
    const Spread latency = spread_of(latencies);
    latency_us_ = latency.low;
    for (std::uint64_t i = 0; i < settings_.samples; ++i)
      rates.push_back(static_cast<double>(settings_.bytes) * 8e-9 / seconds_on_the_way(data_));
    const Spread rate = spread_of(rates);
    return {latency.low, latency.half, rate.median, rate.half, burst(rate)};
  }

  // Gbit/s of what this rank receives while it sends as much: acknowledgements and buckets of both ways meet. Both
  // ends call it at once, when both have measured. Time begins before the other end may send: by a clock that began
  // when this end does, who got a core late found more on the line than it carries.
  double receive_both_ways(bool begins) {
    std::vector<float> incoming(data_.size());
    std::vector<double> rates;
    for (std::uint64_t i = 0; i < settings_.samples + 1; ++i) {
      if (!begins) communicator_.recv(small_, peer_);
      const auto begin = Clock::now();
      communicator_.send(small_, peer_);
      if (begins) communicator_.recv(small_, peer_);
      Work sending = communicator_.start_send(data_, peer_);
      communicator_.recv(incoming, peer_);
      const double seconds = without_latencies(std::chrono::duration<double>(Clock::now() - begin).count());
      sending.wait();
      if (i > 0) rates.push_back(static_cast<double>(settings_.bytes) * 8e-9 / seconds);
    }
    return spread_of(rates).high;
  }

  void answer() {
    for (int i = 0; i < round_trips / 4; ++i) answer_one(small_);
    answer_one(data_);
    for (std::uint64_t i = 0; i < settings_.samples * round_trips; ++i) answer_one(small_);
    for (std::uint64_t i = 0; i < settings_.samples; ++i) answer_one(data_);
    for (std::uint64_t i = 0; i < settings_.samples; ++i) answer_one(short_);
  }

 private:
  // Of a message: its answer of four bytes takes one latency, and it itself another.
  double seconds_on_the_way(std::vector<float>& data) {
    return without_latencies(std::chrono::duration<double>(time([&] { round_trip(data); })).count());
  }
  double without_latencies(double seconds) const { return std::max(seconds - 2e-6 * latency_us_, seconds / 2); }

  // Links that a token bucket shapes pass what they saved during a rest at once: so much sooner is a message there. A
  // shorter one shows it better. Less than what messages differ by anyway is none.
  double burst(const Spread& rate) {
    constexpr auto rest = std::chrono::milliseconds(30);
    std::vector<double> seconds;
    for (std::uint64_t i = 0; i < settings_.samples; ++i) {
      std::this_thread::sleep_for(rest);
      seconds.push_back(seconds_on_the_way(short_));
    }
    const Spread rested = spread_of(seconds);
    const double bytes_per_second = rate.median * 1e9 / 8;
    const auto bytes = static_cast<double>(short_.size() * sizeof(float));
    const double saved = bytes - rested.median * bytes_per_second;
    const double noise = rested.half * bytes_per_second + bytes * rate.half / rate.median;
    return saved > 2 * noise ? saved : 0;
  }

  template <class Call>
  static Clock::duration time(Call call) {
    const auto begin = Clock::now();
    call();
    return Clock::now() - begin;
  }

  void round_trip(std::vector<float>& data) {
    communicator_.send(data, peer_);
    communicator_.recv(small_, peer_);
  }
  void answer_one(std::vector<float>& data) {
    communicator_.recv(data, peer_);
    communicator_.send(small_, peer_);
  }

  Communicator& communicator_;
  Rank peer_;
  const Settings& settings_;
  double latency_us_ = 0;
  std::vector<float> small_ = {0.0F};
  std::vector<float> data_;
  std::vector<float> short_;
};

// All ranks call it; `is_due` says the same on both of a pair. The links of pairs that are not due carry nothing.
template <class IsDue>
MeasuredNetwork measure_pairs(Communicator& communicator, const Settings& settings, const IsDue& is_due) {
  const Rank world = communicator.world();
  std::vector<double> mine(static_cast<std::size_t>(world) * numbers, 0);
  for (const Rank peer : probe::partners(communicator.rank(), world)) {
    communicator.barrier();
    if (peer < 0 || !is_due(std::pair(std::minmax(communicator.rank(), peer)))) continue;
    const PacketCounts before = communicator.packet_counts().value_or(PacketCounts{});
    double* const numbers_of_peer = &mine[static_cast<std::size_t>(peer) * numbers];
    Pair pair(communicator, peer, settings);
    // Two turns: the lower rank measures first.
    for (const bool lower_measures : {true, false}) {
      if ((communicator.rank() < peer) != lower_measures) {
        pair.answer();
        continue;
      }
      const auto found = pair.measure();
      std::copy(found.begin(), found.end(), numbers_of_peer);
    }
    numbers_of_peer[5] = pair.receive_both_ways(communicator.rank() < peer);
    const PacketCounts more = bench::grown(before, communicator.packet_counts().value_or(PacketCounts{}));
    numbers_of_peer[6] = static_cast<double>(more.sent);
    numbers_of_peer[7] = static_cast<double>(more.lost);
  }
  std::vector<double> all(mine.size() * static_cast<std::size_t>(world));
  communicator.all_gather(mine, all);
  MeasuredNetwork network{.world = world, .transport = std::string(communicator.transport_name())};
  if (communicator.packet_counts())
    network.loss_by = network.transport.find("udp") != std::string::npos ? "packets that udp found lost"
                                                                         : "segments that tcp sent again";
  const auto of = [&](Rank from, Rank to) {
    return &all[(static_cast<std::size_t>(from) * static_cast<std::size_t>(world) + static_cast<std::size_t>(to)) *
                numbers];
  };
  for (Rank from = 0; from < world; ++from)
    for (Rank to = 0; to < world; ++to) {
      if (from == to) continue;
      const double* values = of(from, to);
      MeasuredLink link{.from = from,
                        .to = to,
                        .latency_us = values[0],
                        .latency_spread_us = values[1],
                        .gbit_per_second = values[2],
                        .gbit_spread = values[3],
                        .burst_bytes = values[4],
                        .gbit_both_ways = of(to, from)[5]};
      set_loss(link, values[6], values[7]);
      network.links.push_back(link);
    }
  return network;
}

// How many pairs were doubtful, and measured again.
struct Measurement {
  MeasuredNetwork network;
  std::size_t again = 0;
};

Measurement measure(Communicator& communicator, const Settings& settings) {
  Measurement result{measure_pairs(communicator, settings, [](const auto&) { return true; })};
  for (int times = 0; times < most_times_again; ++times) {
    const auto doubtful = doubtful_pairs(result.network);
    if (doubtful.empty()) break;
    result.again = std::max(result.again, doubtful.size());
    const auto is_due = [&](const std::pair<Rank, Rank>& pair) { return std::ranges::binary_search(doubtful, pair); };
    const MeasuredNetwork again = measure_pairs(communicator, settings, is_due);
    for (std::size_t i = 0; i < again.links.size(); ++i)
      result.network.links[i] = better_of(result.network.links[i], again.links[i]);
  }
  result.network.machines = probe::measure_machines(communicator, result.network, settings.bytes, settings.samples);
  raise_by_rings(result.network);
  return result;
}

void print(const Measurement& measurement) {
  const MeasuredNetwork& network = measurement.network;
  if (measurement.again > 0)
    fmt::print("# {} slower than the same ranks with others, or both ways at once than one way: measured again\n",
               measurement.again == 1 ? "1 pair was" : fmt::format("{} pairs were", measurement.again));
  fmt::print("# {} ranks over {}\n{:>5} {:>5} {:>12} {:>10} {:>12} {:>10} {:>12} {:>9} {:>19}\n", network.world,
             network.transport, "from", "to", "latency us", "+-", "Gbit/s", "+-", "both ways", "loss", "95 %");
  for (const auto& link : network.links) {
    fmt::print("{:>5} {:>5} {:>12.2f} {:>10.2f} {:>12.4f} {:>10.4f} {:>12.4f}", link.from, link.to, link.latency_us,
               link.latency_spread_us, link.gbit_per_second, link.gbit_spread, link.gbit_both_ways);
    if (link.packets > 0)
      fmt::print(" {:>7.3f} % {:>6.3f} .. {:>6.3f} %\n", link.loss * 100, link.loss_least * 100, link.loss_most * 100);
    else
      fmt::print(" {:>9} {:>19}\n", "-", "-");
  }
  for (const auto& machine : network.machines)
    fmt::print(
        "# ranks {} on one machine: {:.4f} Gbit/s together in an all_reduce by a ring, whose links would carry "
        "{:.4f}\n",
        fmt::join(machine.ranks, ", "), machine.gbit_together, ring_gbit(network, machine.ranks));
}

nlohmann::json to_json(const Measurement& measurement) {
  const MeasuredNetwork& network = measurement.network;
  nlohmann::json links = nlohmann::json::array();
  for (const auto& link : network.links) {
    links.push_back({{"from", link.from},
                     {"to", link.to},
                     {"latency_us", link.latency_us},
                     {"latency_spread_us", link.latency_spread_us},
                     {"gbit_per_second", link.gbit_per_second},
                     {"gbit_spread", link.gbit_spread},
                     {"burst_bytes", link.burst_bytes},
                     {"gbit_both_ways", link.gbit_both_ways}});
    if (link.packets > 0)
      links.back().update({{"packets", link.packets},
                           {"loss", link.loss},
                           {"loss_least", link.loss_least},
                           {"loss_most", link.loss_most}});
  }
  nlohmann::json machines = nlohmann::json::array();
  for (const auto& machine : network.machines)
    machines.push_back({{"ranks", machine.ranks}, {"gbit_together", machine.gbit_together}});
  return {{"world", network.world},
          {"transport", network.transport},
          {"loss_by", network.loss_by},
          {"pairs_measured_again", measurement.again},
          {"links", links},
          {"machines", machines},
          {"environment", environment()}};
}

// Throws Error{config} where one of them cannot be written.
struct Results {
  explicit Results(const Settings& settings) : output(settings.output, "--output"), json(settings.json_path) {}
  ResultFile output;
  JsonFile json;
};

int run_rank(Settings settings, const WorldPlace& place) {
  CommunicatorOptions options{.transport = settings.transport, .measure = false};  // which this program does itself
  options.node = place.node;
  options.purpose = "ranvier probe";
  options.link_bytes_per_second = settings.link_bytes_per_second;
  options.interface_address = settings.interface_address;
  options.tcp_sockets = static_cast<int>(settings.sockets);
  options.ports = settings.ports;
  options.security = settings.security;
  const auto communicator = meet(place, options);
  if (communicator->world() < 2) throw Error(ErrorKind::usage, "one rank has no link to measure; start two or more");
  const bool reports = communicator->rank() == 0;
  std::optional<Results> results;
  std::exception_ptr refusal;
  if (reports) try {
      results.emplace(settings);
    } catch (const Error&) {
      refusal = std::current_exception();
    }
  // Where rank 0 cannot report all of them end, and it says why; what it measures they do.
  std::array<std::int64_t, 3> of_first{refusal ? 1 : 0, static_cast<std::int64_t>(settings.bytes),
                                       static_cast<std::int64_t>(settings.samples)};
  communicator->broadcast(of_first, 0);
  if (refusal) std::rethrow_exception(refusal);
  if (of_first[0] != 0) return 1;
  settings.bytes = static_cast<std::size_t>(of_first[1]);
  settings.samples = static_cast<std::uint64_t>(of_first[2]);
  const Measurement measurement = measure(*communicator, settings);
  if (!reports) return 0;
  if (settings.json_path != "-" && settings.output != "-") print(measurement);
  results->output.write(to_toml(measurement.network));
  results->json.write(to_json(measurement));
  return 0;
}

// None if there is nothing left to do.
std::optional<Settings> parse_settings(const Arguments& arguments) {
  CLI::App app("Measure latency and bandwidth between every two ranks, each way.", "ranvier probe");
  app.footer(probe_examples);
  Settings settings;
  add_count(app, "--ranks", settings.ranks, "how many to start on this machine; else a launcher starts them", 2, 1024);
  add_transport(app, settings.transport, "what carries the bytes")->envname("RANVIER_TRANSPORT");
  const auto take_rate = [&settings](const std::string& word) { settings.link_bytes_per_second = link_rate_of(word); };
  app.add_option_function<std::string>("--link-rate", take_rate, "pace each rank's sending, to try a slow network")
      ->envname("RANVIER_LINK_RATE")
      ->type_name("RATE");
  add_listening(app, settings.interface_address, settings.sockets, settings.ports, settings.security);
  add_bytes(app, "--bytes", settings.bytes, "of a long message; default 4M");
  add_count(app, "--samples", settings.samples, "of each number", 1, 10'000);
  app.add_option("--output", settings.output, "write the network there, for simulate and plan; - is stdout")
      ->type_name("FILE");
  app.add_option("--json", settings.json_path, "the same as JSON")->type_name("FILE");
  if (parse(app, arguments)) return std::nullopt;
  if (settings.bytes % sizeof(float) != 0 || settings.bytes < 1024)
    throw Error(ErrorKind::usage, "--bytes is a multiple of 4 from 1024");
  refuse_overwriting({{"--output", settings.output}, {"--json", settings.json_path}}, files_of(settings.security));
  check_security(settings.security);
  if (settings.ranks) check_ports(settings.ports, *settings.ranks);
  const std::string& name = settings.output;
  if (!name.empty() && name != "-" && !name.ends_with(".toml") && !name.starts_with("/dev/"))
    throw Error(ErrorKind::usage, fmt::format("--output '{}' is no name by which simulate and plan know a file of "
                                              "probe; let it end in .toml",
                                              name));
  return settings;
}

}  // namespace

int run_probe(const Arguments& arguments) {
  std::optional<Settings> settings;
  try {
    settings = parse_settings(arguments);
  } catch (const Error& why) {
    return refuse_to_meet("ranvier probe", why, [&](const WorldPlace& place) { decline(place, why); });
  }
  if (!settings) return 0;
  if (const auto place = world_from_environment()) return run_rank(*settings, *place);
  if (!settings->ranks)
    throw Error(ErrorKind::usage,
                "nothing says how many ranks to measure; add --ranks 2, or start it with mpirun, torchrun or srun");
  const Results results(*settings);  // before anybody starts
  Launch launch{.count = static_cast<int>(*settings->ranks), .command = {this_program(), "probe"}};
  launch.command.insert(launch.command.end(), arguments.begin(), arguments.end());
  return run_workers(launch);
}

}  // namespace ranvier::cli
