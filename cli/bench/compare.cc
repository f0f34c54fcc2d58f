#include "bench/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/job.h"
#include "machine.h"
#include "ranvier/error.h"
#include "ranvier/transport.h"

namespace ranvier::bench {
namespace {

constexpr double late = 2;  // times the median

struct Measurements {
  std::vector<double> latencies;  // seconds, of one operation each
  std::vector<double> large;      // seconds of one operation
  std::vector<double> cpu;        // seconds of CPU in one operation, all ranks together
  std::uint64_t wrong = 0;
  LossCounts losses;
  PacketCounts packets;
  double squared_errors = 0;
  std::uint64_t checks = 0;
  bool on_one_network = false;
};

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const auto place = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[std::max<std::size_t>(place, 1) - 1];
}

double late_share(const std::vector<double>& values) {
  const double limit = late * percentile(values, 0.5);
  const auto count = std::count_if(values.begin(), values.end(), [&](double each) { return each > limit; });
  return static_cast<double>(count) / static_cast<double>(values.size());
}

// Nothing where the world fails, which then is none any more.
std::optional<Outcome> run(Compared& each, const Job& job, Measurements& result) {
  Outcome outcome;
  try {
    outcome = each.world->run(job);
  } catch (const Error& problem) {
    each.world.reset();
    each.absent = fmt::format("failed while it was measured: {}", problem.what());
    return std::nullopt;
  }
  result.wrong += outcome.wrong;
  result.losses += outcome.losses;
  result.packets += outcome.packets;
  result.on_one_network = outcome.networks.size() == 1;
  return outcome;
}

// One sample of every transport after the other, `samples` times.
template <class Take>
void alternate(std::vector<Compared>& all, std::vector<Measurements>& results, const Job& job, std::uint64_t samples,
               Take take) {
  for (std::uint64_t sample = 0; sample < samples + 1; ++sample)
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!all[i].world) continue;
      const auto outcome = run(all[i], job, results[i]);
      if (outcome && sample > 0) take(results[i], *outcome);  // the first one warms up
    }
}

bool may_lack(const Job& job, const std::string& transport) {
  return parse_transport(transport).loss > 0 && job.collective == Collective::all_reduce && job.dtype == DType::f32 &&
         (job.op == ReduceOp::sum || job.op == ReduceOp::average);
}

// Whole results against the exact answer, with other values each time: right, and where they may lack some, how far
// off.
void check(std::vector<Compared>& all, std::vector<Measurements>& results, Job job, std::uint64_t times) {
  job.iterations = 1;
  job.warmups = 0;
  for (job.seed = 1; job.seed <= times; ++job.seed)
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!all[i].world) continue;
      const bool lacks = may_lack(job, all[i].transport);
      job.fill = lacks ? Fill::centred : Fill::varied;
      const auto outcome = run(all[i], job, results[i]);
      if (!outcome) continue;
      results[i].squared_errors += outcome->error * outcome->error;
      ++results[i].checks;
      job.fill = Fill::alike;
      if (lacks) run(all[i], job, results[i]);
    }
}

// Libraries that move what stays on a host through its memory: the kernel's packets there are others'.
bool has_packets(const std::string& transport, const Measurements& found) {
  return !(found.on_one_network && (transport == "mpi" || transport == "ucx")) && found.packets.sent > 0;
}

nlohmann::json row_of(const std::string& transport, const Measurements& found, double gigabytes) {
  const PacketCounts& packets = found.packets;
  nlohmann::json row{{"transport", transport},
                     {"algbw_gbps", gigabytes / percentile(found.large, 0.5)},
                     {"latency_us", percentile(found.latencies, 0.5) * 1e6},
                     {"latency_p99_us", percentile(found.latencies, 0.99) * 1e6},
                     {"late_share", late_share(found.latencies)},
                     {"cpu_seconds_per_gb", percentile(found.cpu, 0.5) / gigabytes},
                     {"packets_sent", nullptr},
                     {"packets_lost_share", nullptr},
                     {"packets_refused", nullptr},
                     {"lost_share", found.losses.share()},
                     {"relative_error", nullptr},
                     {"wrong", found.wrong}};
  if (has_packets(transport, found)) {
    row["packets_sent"] = packets.sent;
    row["packets_lost_share"] = static_cast<double>(packets.lost) / static_cast<double>(packets.sent);
    row["packets_refused"] = packets.refused;
  }
  if (found.checks > 0) row["relative_error"] = std::sqrt(found.squared_errors / static_cast<double>(found.checks));
  return row;
}

constexpr auto heads = "#{:>13} {:>9} {:>10} {:>10} {:>7} {:>8} {:>8} {:>8} {:>8} {:>9} {:>7}\n";

void print_heads(const Options& options, Rank ranks, const std::string& where) {
  fmt::print("# ranvier bench: {} of {} over each transport, {} ranks {}\n", job_name(options.collective),
             name_of(options.dtype), ranks, where);
  fmt::print("# throughput and CPU seconds (all ranks, per GB of the vector): {} B, median of {} samples\n",
             options.max_bytes, options.sampling.samples);
  fmt::print(
      "# latency: one operation of {} B after a barrier, median and 99th percentile of {}; late: took more "
      "than {:g} times the median\n",
      options.min_bytes, options.latency_samples, late);
  fmt::print(
      "# lost: packets sent again or given up, by udp's own count, else by the kernel's of all TCP of these "
      "hosts; damaged: arrived and were thrown away\n");
  fmt::print(
      "# missing: of the values that a sum was to have; error: of sums of values with mean 0, relative, root mean "
      "square of {}\n#\n",
      options.sampling.checks);
  fmt::print(heads, "transport", "algbw", "latency", "p99", "late", "CPU", "lost", "damaged", "missing", "error",
             "#wrong");
  fmt::print(heads, "", "(GB/s)", "(us)", "(us)", "(%)", "(s/GB)", "(%)", "(packets)", "(%)", "", "");
}

void print(const nlohmann::json& row) {
  const auto number = [&](const char* key) { return row[key].get<double>(); };
  const auto known = [&](const char* key, const char* format, double times = 1) {
    return row[key].is_null() ? "-" : fmt::format(fmt::runtime(format), number(key) * times);
  };
  fmt::print(" {:>13} {:>9.4f} {:>10.1f} {:>10.1f} {:>7.2f} {:>8.3f} {:>8} {:>8} {:>8.3f} {:>9} {:>7}\n",
             row["transport"].get<std::string>(), number("algbw_gbps"), number("latency_us"), number("latency_p99_us"),
             number("late_share") * 100, number("cpu_seconds_per_gb"), known("packets_lost_share", "{:.3f}", 100),
             known("packets_refused", "{:.0f}"), number("lost_share") * 100, known("relative_error", "{:.2g}"),
             row["wrong"].get<std::uint64_t>());
}

}  // namespace

std::vector<std::string> compared_transports() {
  std::vector<std::string> all;
  for (const auto name : transport_names) {
    all.emplace_back(name);
    if (name == "udp") all.emplace_back("udp:loss=0.01");
  }
  return all;
}

int compare_transports(const Options& options, Rank ranks, const std::string& where, std::vector<Compared>& all,
                       const cli::JsonFile& file) {
  Job small = job_of(options, options.min_bytes, ranks), large = job_of(options, options.max_bytes, ranks);
  small.iterations = 1;
  small.warmups = 1;
  large.iterations = options.sampling.iterations.value_or(2);
  large.warmups = options.sampling.warmups.value_or(1);
  small.fill = steady_fill(small);
  large.fill = steady_fill(large);
  const double gigabytes = static_cast<double>(large.count * size_of(large.dtype)) / 1e9;

  const auto are_here = [&] {
    return std::ranges::count_if(all, [](const Compared& each) { return each.world != nullptr; });
  };
  const auto met = are_here();
  std::vector<Measurements> results(all.size());
  alternate(all, results, small, options.latency_samples,
            [](Measurements& to, const Outcome& outcome) { to.latencies.push_back(outcome.seconds); });
  alternate(all, results, large, options.sampling.samples, [](Measurements& to, const Outcome& outcome) {
    to.large.push_back(outcome.seconds);
    to.cpu.push_back(outcome.cpu_seconds);
  });
  check(all, results, large, options.sampling.checks);

  if (options.prints()) print_heads(options, ranks, where);
  nlohmann::json rows = nlohmann::json::array(), absent = nlohmann::json::object();
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].world) {
      if (options.prints()) fmt::print("# {}: {}\n", all[i].transport, all[i].absent);
      absent[all[i].transport] = all[i].absent;
      continue;
    }
    rows.push_back(row_of(all[i].transport, results[i], gigabytes));
    if (options.prints()) print(rows.back());
    wrong += results[i].wrong;
  }
  nlohmann::json environment = cli::environment();
  environment["arguments"] = options.arguments;
  file.write({{"rows", rows}, {"absent", absent}, {"environment", environment}});
  if (wrong > 0) cli::say(fmt::format("ranvier bench: {} elements are wrong; report this\n", wrong));
  return wrong > 0 || are_here() < met ? 1 : 0;
}

}  // namespace ranvier::bench
