#include "bench/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/sampling.h"
#include "machine.h"
#include "output.h"
#include "ranvier/error.h"
#include "ranvier/schedule.h"

namespace ranvier::bench {
namespace {

// The winner of the size before stays unless another is clearly faster: a table of few rows is worth more than noise.
constexpr double clearly = 0.97;

// Every sample in the order in which it ran: sample i of all algorithms at one size ran one after the other, so whoever
// compares two algorithms compares those.
nlohmann::json json_of(const Job& job, const Measured& measured, const TuningRow& kind) {
  nlohmann::json samples = nlohmann::json::array();
  for (const double seconds : measured.samples) samples.push_back(seconds * 1e6);
  return {{"collective", job_name(job.collective)},
          {"transport", kind.transport},
          {"algorithm", job.algorithm},
          {"dtype", name_of(job.dtype)},
          {"ranks", kind.ranks},
          {"bytes", job.count * size_of(job.dtype)},
          {"time_us", measured.seconds.median * 1e6},
          {"samples_us", samples},
          {"wrong", measured.wrong}};
}

nlohmann::json environment_of(const Options& options) {
  nlohmann::json environment = cli::environment();
  environment["arguments"] = options.arguments;
  environment["samples"] = options.sampling.samples;
  return environment;
}

void print_heads(const Options& options, const TuningRow& kind, std::size_t algorithms) {
  fmt::print("# ranvier bench --tune: {} of {}, {}, {}, {} algorithms, median of {} samples\n#\n",
             job_name(options.collective), name_of(options.dtype), in_words(kind.ranks), kind.transport, algorithms,
             options.sampling.samples);
  fmt::print("# {:>10}  {:<20}{:>12}  {:<20}{:>12}{:>12}{:>8}\n", "size", "fastest", "time", "next", "time", "auto",
             "ratio");
  fmt::print("# {:>10}  {:<20}{:>12}  {:<20}{:>12}{:>12}\n", "(B)", "", "(us)", "", "(us)", "(us)");
}

}  // namespace

int tune(const Options& options, World& world, const TuningFile& file) {
  const cli::JsonFile json_file(options.json_file);
  nlohmann::json all = nlohmann::json::array();
  std::vector<std::string> names{"auto"};
  for (const AlgorithmSpec& spec : candidates(options.collective, world.size())) names.push_back(spec_text(spec));
  const TuningRow kind{
      .collective = options.collective, .transport = world.description(), .ranks = world.size(), .algorithm = {}};
  if (options.prints()) print_heads(options, kind, names.size() - 1);

  std::vector<Fastest> found;
  for (const std::size_t bytes : sizes(options)) {
    std::vector<Job> jobs(names.size(), job_of(options, bytes, world.size()));
    for (std::size_t i = 0; i < names.size(); ++i) jobs[i].algorithm = names[i];
    const std::vector<Measured> measured = measure_in_turn(world, jobs, options.sampling);
    for (std::size_t i = 0; i < jobs.size(); ++i)
      if (measured[i].wrong > 0) {
        cli::say(fmt::format(
            "ranvier bench: {} elements are wrong by {} at {} bytes; report this with the command and the output "
            "of 'ranvier doctor'\n",
            measured[i].wrong, jobs[i].algorithm, bytes));
        return 1;
      }

    std::vector<std::size_t> order;
    for (std::size_t i = 1; i < jobs.size(); ++i) order.push_back(i);
    const auto median = [&](std::size_t i) { return measured[i].seconds.median; };
    std::ranges::sort(order, {}, median);
    const auto again = std::ranges::find_if(
        order, [&](std::size_t i) { return !found.empty() && jobs[i].algorithm == found.back().algorithm; });
    if (again != order.end() && median(order.front()) > clearly * median(*again))
      std::rotate(order.begin(), again, again + 1);
    found.push_back({bytes, jobs[order.front()].algorithm});

    const std::size_t next = order.size() > 1 ? order[1] : order[0];
    if (options.prints()) {
      fmt::print("{:>12}  {:<20}{:>12.2f}  {:<20}{:>12.2f}{:>12.2f}{:>8.2f}\n", bytes, found.back().algorithm,
                 median(order.front()) * 1e6, jobs[next].algorithm, median(next) * 1e6, median(0) * 1e6,
                 median(0) / median(order.front()));
      std::fflush(stdout);
    }
    for (std::size_t i = 0; i < jobs.size(); ++i) all.push_back(json_of(jobs[i], measured[i], kind));
  }
  json_file.write({{"rows", all}, {"environment", environment_of(options)}});
  file.replace(rows_of(found, kind));
  return 0;
}

}  // namespace ranvier::bench
