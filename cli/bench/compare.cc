#include "bench/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/job.h"
#include "machine.h"

namespace ranvier::bench {
namespace {

constexpr std::uint64_t latency_samples = 400;  // the 99th percentile of them is the fifth slowest

struct Measurements {
  std::vector<double> latencies;  // seconds, of one operation each
  std::vector<double> large;      // seconds of one operation
  std::vector<double> cpu;        // seconds of CPU in one operation, all ranks together
  std::uint64_t wrong = 0;
};

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const auto place = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[std::max<std::size_t>(place, 1) - 1];
}

// One sample of every transport after the other, `samples` times.
template <class Take>
void alternate(const std::vector<Compared>& all, std::vector<Measurements>& results, const Job& job,
               std::uint64_t samples, Take take) {
  for (std::uint64_t sample = 0; sample < samples; ++sample)
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!all[i].world) continue;
      const Outcome outcome = all[i].world->run(job);
      results[i].wrong += outcome.wrong;
      if (sample > 0) take(results[i], outcome);  // the first one warms up
    }
}

nlohmann::json row_of(const std::string& transport, const Measurements& found, double gigabytes) {
  return {{"transport", transport},
          {"algbw_gbps", gigabytes / percentile(found.large, 0.5)},
          {"latency_us", percentile(found.latencies, 0.5) * 1e6},
          {"latency_p99_us", percentile(found.latencies, 0.99) * 1e6},
          {"cpu_seconds_per_gb", percentile(found.cpu, 0.5) / gigabytes},
          {"wrong", found.wrong}};
}

void print(const nlohmann::json& row) {
  fmt::print("{:>10} {:>12.3f} {:>12.1f} {:>12.1f} {:>12.3f} {:>8}\n", row["transport"].get<std::string>(),
             row["algbw_gbps"].get<double>(), row["latency_us"].get<double>(), row["latency_p99_us"].get<double>(),
             row["cpu_seconds_per_gb"].get<double>(), row["wrong"].get<std::uint64_t>());
}

}  // namespace

int compare_transports(const Options& options, const std::vector<Compared>& all, const cli::JsonFile& file) {
  const Rank ranks = *options.ranks;
  Job small = job_of(options, options.min_bytes, ranks), large = job_of(options, options.max_bytes, ranks);
  small.iterations = 1;
  small.warmups = 1;
  large.iterations = options.sampling.iterations.value_or(2);
  large.warmups = 1;
  small.fill = steady_fill(small);
  large.fill = steady_fill(large);
  const double gigabytes = static_cast<double>(large.count * size_of(large.dtype)) / 1e9;

  std::vector<Measurements> results(all.size());
  alternate(all, results, small, latency_samples + 1,
            [](Measurements& to, const Outcome& outcome) { to.latencies.push_back(outcome.seconds); });
  alternate(all, results, large, options.sampling.samples + 1, [](Measurements& to, const Outcome& outcome) {
    to.large.push_back(outcome.seconds);
    to.cpu.push_back(outcome.cpu_seconds);
  });

  fmt::print("# ranvier bench: {} of {} over each transport, {} ranks on this machine\n", job_name(options.collective),
             name_of(options.dtype), ranks);
  fmt::print("# throughput and CPU seconds (all ranks, per GB of the vector): {} B, median of {} samples\n",
             options.max_bytes, options.sampling.samples);
  fmt::print("# latency: one operation of {} B after a barrier, median and 99th percentile of {}\n#\n",
             options.min_bytes, latency_samples);
  fmt::print("#{:>9} {:>12} {:>12} {:>12} {:>12} {:>8}\n", "transport", "algbw", "latency", "p99", "CPU", "#wrong");
  fmt::print("#{:>9} {:>12} {:>12} {:>12} {:>12} {:>8}\n", "", "(GB/s)", "(us)", "(us)", "(s/GB)", "");
  nlohmann::json rows = nlohmann::json::array(), absent = nlohmann::json::object();
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].world) {
      fmt::print("# {}: {}\n", all[i].transport, all[i].absent);
      absent[all[i].transport] = all[i].absent;
      continue;
    }
    rows.push_back(row_of(all[i].transport, results[i], gigabytes));
    print(rows.back());
    wrong += results[i].wrong;
  }
  nlohmann::json environment = cli::environment();
  environment["arguments"] = options.arguments;
  file.write({{"rows", rows}, {"absent", absent}, {"environment", environment}});
  if (wrong > 0) fmt::print(stderr, "ranvier bench: {} elements are wrong; report this\n", wrong);
  return wrong > 0 ? 1 : 0;
}

}  // namespace ranvier::bench
