#include "bench/table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>

#include "bench/report.h"

namespace ranvier::bench {
namespace {

// Progress belongs on a terminal, where the next line of it writes over the last one.
void show_progress(std::string_view text) {
  if (isatty(STDERR_FILENO) == 0) return;
  cli::say(fmt::format("\r\033[K{}", text));
  std::fflush(stderr);
}

}  // namespace

int measure_all(const Options& options, World& ours, const std::vector<World*>& baselines,
                const std::vector<std::string>& absent, const cli::JsonFile& file) {
  const Report report(options, ours, {baselines.begin(), baselines.end()}, absent);
  report.print_header();
  std::vector<Row> rows;
  std::uint64_t wrong = 0;
  std::string untrue;  // the baselines whose results were wrong
  for (const auto bytes : sizes(options)) {
    show_progress(fmt::format("measuring {} bytes …", bytes));
    rows.push_back(measure(ours, baselines, job_of(options, bytes, ours.size()), options.sampling));
    show_progress("");
    report.print(rows.back());
    wrong += rows.back().ours.wrong;
    for (std::size_t i = 0; i < baselines.size(); ++i)
      if (rows.back().baselines[i].wrong > 0) untrue += fmt::format(" {} at {} bytes;", baselines[i]->name(), bytes);
  }
  file.write(report.json(rows));
  if (!untrue.empty())
    cli::say(fmt::format(
        "ranvier bench: a baseline computed wrong results, so its times mean nothing:{} see \"wrong\" in the "
        "--json file\n",
        untrue));
  if (wrong == 0) return 0;
  cli::say(fmt::format(
      "ranvier bench: {} elements are wrong; report this with the command and the output of 'ranvier doctor'\n",
      wrong));
  return 1;
}

}  // namespace ranvier::bench
