#include "bench/report.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "machine.h"
#include "ranvier/transport.h"

namespace ranvier::bench {
namespace {

// Four digits that mean something, whatever the unit: 0.0612, 12.34, 45120.
std::string digits(double value) {
  if (value < 1) return fmt::format("{:.4f}", value);
  if (value < 100) return fmt::format("{:.2f}", value);
  return fmt::format("{:.{}f}", value, value < 1000 ? 1 : 0);
}

double bytes_of(const Job& job) { return static_cast<double>(job.count * size_of(job.dtype)); }
double algbw(const Job& job, double seconds) { return seconds > 0 ? bytes_of(job) / seconds / 1e9 : 0; }

std::string_view reduction(const Job& job) { return reduces(job.collective) ? name_of(job.op) : "none"; }

nlohmann::json time_json(const Measured& measured) {
  if (!measured.refusal.empty()) return {{"time_us", nullptr}, {"unsupported", measured.refusal}};
  const auto& seconds = measured.seconds;
  // In the order in which they ran: the i-th of all baselines ran in one turn, in which ranvier has one beside each.
  nlohmann::json samples = nlohmann::json::array();
  for (const double each : measured.samples) samples.push_back(each * 1e6);
  return {{"time_us", seconds.median * 1e6},
          {"time_us_min", seconds.min * 1e6},
          {"time_us_p25", seconds.p25 * 1e6},
          {"time_us_p75", seconds.p75 * 1e6},
          {"samples_us", samples},
          {"iterations", measured.iterations},
          {"wrong", measured.wrong}};
}

}  // namespace

Report::Report(const Options& options, const World& ours, std::vector<const World*> baselines,
               const std::vector<std::string>& absent)
    : options_(options),
      ours_(ours),
      baselines_(std::move(baselines)),
      absent_(absent),
      may_lose_(parse_transport(options.transport).loss > 0) {}

void Report::print_header() const {
  if (!options_.prints()) return;
  fmt::print("# ranvier bench: {} of {}, {}{}, {}, algorithm {}, {}\n", job_name(options_.collective),
             name_of(options_.dtype), in_words(ours_.size()),
             has_root(options_.collective) ? fmt::format(", root {}", options_.root) : "", ours_.description(),
             options_.algorithm, options_.in_place ? "in place" : "out of place");
  for (const auto* baseline : baselines_)
    fmt::print("# beside it: {} ({})\n", baseline->name(), baseline->description());
  for (const auto& sentence : absent_) fmt::print("# not beside it: {}\n", sentence);
  fmt::print("# time: one operation on the slowest rank, median of {} samples\n#\n", options_.sampling.samples);
  fmt::print("#{:>11} {:>12} {:>8} {:>8} {:>9} {:>8} {:>8} {:>7}", "size", "count", "type", "redop", "time", "algbw",
             "busbw", "#wrong");
  if (may_lose_) fmt::print(" {:>8}", "lost");
  for (const auto* baseline : baselines_) fmt::print(" {:>9} {:>7}", baseline->name(), "ratio");
  fmt::print("\n#{:>11} {:>12} {:>8} {:>8} {:>9} {:>8} {:>8} {:>7}", "(B)", "(elements)", "", "", "(us)", "(GB/s)",
             "(GB/s)", "");
  if (may_lose_) fmt::print(" {:>8}", "");
  for (std::size_t i = 0; i < baselines_.size(); ++i) fmt::print(" {:>9} {:>7}", "(us)", "");
  fmt::print("\n");
  std::fflush(stdout);
}

void Report::print(const Row& row) const {
  if (!options_.prints()) return;
  const double seconds = row.ours.seconds.median;
  const double bandwidth = algbw(row.job, seconds);
  fmt::print(" {:>11} {:>12} {:>8} {:>8} {:>9} {:>8} {:>8} {:>7}", bytes_of(row.job), row.job.count,
             name_of(row.job.dtype), reduction(row.job), digits(seconds * 1e6), digits(bandwidth),
             digits(bandwidth * bus_factor(row.job.collective, ours_.size())), row.ours.wrong);
  if (may_lose_) fmt::print(" {:>6.2f} %", row.ours.losses.share() * 100);
  for (const auto& baseline : row.baselines) {
    const bool measured = baseline.refusal.empty();
    fmt::print(" {:>9} {:>7}", measured ? digits(baseline.seconds.median * 1e6) : "-",
               measured ? fmt::format("{:.2f}", baseline.ratio.median) : "-");
  }
  if (row.ours.fell_back) fmt::print("  # by algorithm auto: {} cannot", options_.algorithm);
  fmt::print("\n");
  std::fflush(stdout);
}

nlohmann::json Report::row_json(const Row& row) const {
  const double bandwidth = algbw(row.job, row.ours.seconds.median);
  nlohmann::json result = time_json(row.ours);
  result.update({{"collective", job_name(row.job.collective)},
                 {"transport", ours_.description()},
                 {"algorithm", row.ours.fell_back ? "auto" : options_.algorithm},
                 {"lost_share", row.ours.losses.share()},
                 {"time_us_p99", row.ours.seconds.p99 * 1e6},
                 {"dtype", name_of(row.job.dtype)},
                 {"op", reduction(row.job)},
                 {"ranks", ours_.size()},
                 {"bytes", row.job.count * size_of(row.job.dtype)},
                 {"in_place", row.job.in_place},
                 {"algbw_gbps", bandwidth},
                 {"busbw_gbps", bandwidth * bus_factor(row.job.collective, ours_.size())}});
  if (has_root(row.job.collective)) result["root"] = row.job.root;
  nlohmann::json baselines = nlohmann::json::object();
  for (std::size_t i = 0; i < baselines_.size(); ++i) {
    nlohmann::json entry = time_json(row.baselines[i]);
    if (row.baselines[i].refusal.empty())
      entry.update({{"ratio", row.baselines[i].ratio.median},
                    {"ratio_p25", row.baselines[i].ratio.p25},
                    {"ratio_p75", row.baselines[i].ratio.p75}});
    baselines[baselines_[i]->name()] = entry;
  }
  result["baseline"] = baselines;
  return result;
}

nlohmann::json Report::json(const std::vector<Row>& rows) const {
  nlohmann::json environment = cli::environment();
  environment["arguments"] = options_.arguments;
  environment["samples"] = options_.sampling.samples;
  environment["baselines"] = nlohmann::json::object();
  for (const auto* baseline : baselines_) environment["baselines"][baseline->name()] = baseline->description();
  nlohmann::json result = {{"rows", nlohmann::json::array()}, {"environment", environment}};
  for (const auto& row : rows) result["rows"].push_back(row_json(row));
  return result;
}

}  // namespace ranvier::bench
