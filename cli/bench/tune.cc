#include "bench/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "bench/sampling.h"
#include "ranvier/error.h"
#include "ranvier/schedule.h"

namespace ranvier::bench {
namespace {

// The winner of the size before stays unless another is clearly faster: a table of few rows is worth more than noise.
constexpr double clearly = 0.97;

std::vector<std::string> candidates(Collective collective, Rank world) {
  std::vector<std::string> names;
  for (const Algorithm& algorithm : algorithms()) {
    if (std::ranges::count(algorithm.collectives, collective) == 0) continue;
    try {
      algorithm.build({.collective = collective, .world = world});
      names.emplace_back(algorithm.name);
    } catch (const Error&) {  // not for this world
    }
  }
  return names;
}

Job job_of(const Options& options, std::size_t bytes, Rank world, std::string algorithm) {
  Job job;
  job.collective = options.collective;
  job.dtype = options.dtype;
  job.op = options.op;
  job.in_place = options.in_place;
  job.count = job_count(options.collective, options.dtype, bytes, world);
  job.algorithm = std::move(algorithm);
  return job;
}

}  // namespace

TuningFile::TuningFile(const std::string& path) : file_(path, "--tune") {
  if (path != "-" && std::filesystem::exists(path)) before_ = TuningTable::read(path);
}

void TuningFile::replace(const std::vector<TuningRow>& rows) const {
  TuningTable table = before_;
  table.replace(rows);
  file_.write(table.text());
}

std::vector<TuningRow> rows_of(const std::vector<Fastest>& found, const TuningRow& kind) {
  std::vector<TuningRow> rows;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const bool last = i + 1 == found.size();
    if (!last && found[i + 1].algorithm == found[i].algorithm) continue;
    TuningRow row = kind;
    row.algorithm = found[i].algorithm;
    if (!last)
      row.up_to = static_cast<std::size_t>(
          std::sqrt(static_cast<double>(found[i].bytes) * static_cast<double>(found[i + 1].bytes)));
    rows.push_back(row);
  }
  return rows;
}

int tune(const Options& options, World& world, const TuningFile& file) {
  const std::vector<std::string> names = candidates(options.collective, world.size());
  const TuningRow kind{
      .collective = options.collective, .transport = world.description(), .ranks = world.size(), .algorithm = {}};
  fmt::print("# ranvier bench --tune: {} of {}, {} ranks, {}, {} algorithms, median of {} samples\n#\n",
             job_name(options.collective), name_of(options.dtype), world.size(), kind.transport, names.size(),
             options.sampling.samples);
  fmt::print("# {:>10}  {:<20}{:>12}  {:<20}{:>12}{:>12}{:>8}\n", "size", "fastest", "time", "next", "time", "auto",
             "ratio");
  fmt::print("# {:>10}  {:<20}{:>12}  {:<20}{:>12}{:>12}\n", "(B)", "", "(us)", "", "(us)", "(us)");

  std::vector<Fastest> found;
  for (const std::size_t bytes : sizes(options)) {
    std::vector<Job> jobs{job_of(options, bytes, world.size(), "auto")};
    for (const std::string& name : names) jobs.push_back(job_of(options, bytes, world.size(), name));
    const std::vector<Measured> measured = measure_in_turn(world, jobs, options.sampling);
    for (std::size_t i = 0; i < jobs.size(); ++i)
      if (measured[i].wrong > 0) {
        fmt::print(
            stderr,
            "ranvier bench: {} elements are wrong by {} at {} bytes; report this with the command and the output "
            "of 'ranvier doctor'\n",
            measured[i].wrong, jobs[i].algorithm, bytes);
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
    fmt::print("{:>12}  {:<20}{:>12.2f}  {:<20}{:>12.2f}{:>12.2f}{:>8.2f}\n", bytes, found.back().algorithm,
               median(order.front()) * 1e6, jobs[next].algorithm, median(next) * 1e6, median(0) * 1e6,
               median(0) / median(order.front()));
    std::fflush(stdout);
  }
  file.replace(rows_of(found, kind));
  return 0;
}

}  // namespace ranvier::bench
