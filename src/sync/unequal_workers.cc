#include "ranvier/unequal_workers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "ranvier/error.h"
#include "ranvier/text.h"

namespace ranvier {
namespace {

// What is in front of `mark`, which is taken away with it; all of it, where there is none.
std::string_view take_until(char mark, std::string_view& words) {
  const auto end = std::min(words.find(mark), words.size());
  const auto word = words.substr(0, end);
  words.remove_prefix(std::min(end + 1, words.size()));
  return word;
}

// Calls `take` with what is between commas.
template <class Take>
void for_each_word(std::string_view words, const Take& take) {
  for (bool more = true; more;) {
    more = words.find(',') != std::string_view::npos;
    take(take_until(',', words));
  }
}

bool is_factor(std::optional<double> factor) { return factor && *factor >= 1 && *factor <= 1000; }

}  // namespace

void take_speeds(std::string_view words, UnequalWorkers& workers) {
  workers.speeds.clear();
  for_each_word(words, [&](std::string_view word) {
    const auto speed = parse_number<double>(word);
    if (!speed || !(*speed >= 0.001 && *speed <= 1))
      throw Error(ErrorKind::usage, fmt::format("--speeds '{}' are not numbers from 0.001 to 1; write one for each "
                                                "worker, such as 1,1,0.5,0.25",
                                                words));
    workers.speeds.push_back(*speed);
  });
}

void take_jitter(std::string_view words, UnequalWorkers& workers) {
  std::string_view rest = words;
  const auto share = parse_number<double>(take_until('x', rest));
  const auto factor = parse_number<double>(rest);
  if (!share || !(*share >= 0 && *share <= 1) || !is_factor(factor))
    throw Error(ErrorKind::usage, fmt::format("--jitter '{}' is not a share of the steps and how many times as long "
                                              "they take; write 0.05x4",
                                              words));
  workers.jitter_share = *share;
  workers.jitter_factor = *factor;
}

void take_stragglers(std::string_view words, UnequalWorkers& workers) {
  workers.stragglers.clear();
  for_each_word(words, [&](std::string_view rest) {
    const auto worker = parse_number<std::uint32_t>(take_until(':', rest));
    const auto from = parse_number<std::uint32_t>(take_until('-', rest));
    const auto to = parse_number<std::uint32_t>(take_until('x', rest));
    const auto factor = parse_number<double>(rest);
    if (!worker || !from || !to || *from >= *to || !is_factor(factor))
      throw Error(ErrorKind::usage, fmt::format("--straggle '{}' is not a rank, its steps and how many times as long "
                                                "they take; write 2:100-200x4, several with commas between",
                                                words));
    workers.stragglers.push_back({.worker = *worker, .from = *from, .to = *to, .factor = *factor});
  });
}

std::string speeds_in_words(const UnequalWorkers& workers) { return fmt::format("{}", fmt::join(workers.speeds, ",")); }

std::string jitter_in_words(const UnequalWorkers& workers) {
  return workers.jitter_share > 0 ? fmt::format("{}x{}", workers.jitter_share, workers.jitter_factor) : "";
}

std::string stragglers_in_words(const UnequalWorkers& workers) {
  std::string words;
  for (const Straggler& each : workers.stragglers)
    words += fmt::format("{}{}:{}-{}x{}", words.empty() ? "" : ",", each.worker, each.from, each.to, each.factor);
  return words;
}

void check_workers(const UnequalWorkers& workers, std::uint64_t count) {
  for (const Straggler& each : workers.stragglers)
    if (each.worker >= count)
      throw Error(ErrorKind::usage,
                  fmt::format("--straggle names rank {} of {} workers; count them from 0", each.worker, count));
  if (workers.speeds.size() > count) check_speeds(workers, count);
}

void check_speeds(const UnequalWorkers& workers, std::uint64_t count) {
  if (!workers.speeds.empty() && workers.speeds.size() != count)
    throw Error(ErrorKind::usage,
                fmt::format("--speeds has {} number{} for {} workers; give one for each, with commas between them",
                            workers.speeds.size(), workers.speeds.size() == 1 ? "" : "s", count));
}

Slowness::Slowness(const UnequalWorkers& workers, std::uint64_t worker, std::uint64_t seed)
    : usual_(worker < workers.speeds.size() ? 1 / workers.speeds[worker] : 1),
      jitter_share_(workers.jitter_share),
      jitter_factor_(workers.jitter_factor),
      random_(seed * 1'000'003 + worker) {
  std::ranges::copy_if(workers.stragglers, std::back_inserter(straggles_),
                       [&](const Straggler& each) { return each.worker == worker; });
}

double Slowness::of(std::uint64_t step) {
  double times = usual_;
  for (const Straggler& each : straggles_)
    if (each.from <= step && step < each.to) times *= each.factor;
  // 53 bits, the same with every standard library.
  if (static_cast<double>(random_() >> 11) * 0x1p-53 < jitter_share_) times *= jitter_factor_;
  return times;
}

}  // namespace ranvier
