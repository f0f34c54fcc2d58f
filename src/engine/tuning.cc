#include "ranvier/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/tuning_file.h"
#include "ranvier/error.h"
#include "ranvier/text.h"
#include "ranvier/transport.h"

namespace ranvier {
namespace {

constexpr Rank most_ranks = 1 << 20;
constexpr std::string_view learned = "learned";  // behind an algorithm

std::vector<std::string_view> words_of(std::string_view line) {
  constexpr std::string_view blanks = " \t\r";
  line = line.substr(0, line.find('#'));
  std::vector<std::string_view> words;
  for (auto begin = line.find_first_not_of(blanks); begin != line.npos; begin = line.find_first_not_of(blanks)) {
    line.remove_prefix(begin);
    words.push_back(line.substr(0, line.find_first_of(blanks)));
    line.remove_prefix(words.back().size());
  }
  return words;
}

// Throws Error with one sentence on what is wrong, without the place.
TuningRow row_of(const std::vector<std::string_view>& words) {
  const auto refuse = [](const std::string& sentence) { throw Error(ErrorKind::config, sentence); };
  if (words.size() != 5 && words.size() != 6)
    refuse(
        fmt::format("{} words where a row has 5, or 6 with '{}': collective, transport, ranks, up to how many bytes, "
                    "algorithm",
                    words.size(), learned));
  TuningRow row;
  row.learned = words.size() == 6;
  if (row.learned && words[5] != learned)
    refuse(fmt::format("'{}' behind the algorithm; nothing or '{}' can stand there", words[5], learned));
  const auto collective = parse_collective(words[0]);
  if (!collective) {
    std::vector<std::string_view> names(all_collectives.size());
    std::ranges::transform(all_collectives, names.begin(), [](Collective each) { return name_of(each); });
    refuse(unknown_name("collective", words[0], names));
  }
  row.collective = *collective;
  if (row.collective == Collective::neighbor_exchange)
    refuse("neighbor_exchange has one algorithm, whose grid is what a call means; take this row out");
  if (row.collective == Collective::barrier || row.collective == Collective::send || row.collective == Collective::recv)
    refuse(fmt::format("{} has one algorithm; take this row out", words[0]));
  if (words[1] == "auto") refuse("auto is no transport but a choice of one; write shm, tcp, or shm+tcp");
  parse_transport(words[1]);
  row.transport = words[1];
  const auto ranks = parse_number<decltype(row.ranks)>(words[2]);
  if (!ranks || *ranks < 1 || *ranks > most_ranks)
    refuse(fmt::format("'{}' is no number of ranks; write a whole number from 1 to {}", words[2], most_ranks));
  row.ranks = *ranks;
  if (words[3] != "max") {
    const auto bytes = parse_bytes(words[3]);
    if (!bytes) refuse(fmt::format("'{}' is no size; write 4096, 64K, 16M or max", words[3]));
    row.up_to = *bytes;
  }
  row.algorithm = words[4];
  if (row.algorithm == TuningRow::automatic) return row;
  const AlgorithmSpec spec = parse_algorithm(row.algorithm);
  find_algorithm(spec.algorithm().name, row.collective);
  spec.algorithm().build({.collective = row.collective, .world = row.ranks, .dims = spec.dims});
  return row;
}

std::string size_text(std::size_t bytes) {
  if (bytes == TuningRow::max) return "max";
  for (const auto& [unit, shift] : {std::pair{'G', 30}, std::pair{'M', 20}, std::pair{'K', 10}})
    if (bytes > 0 && bytes % (std::size_t{1} << shift) == 0) return fmt::format("{}{}", bytes >> shift, unit);
  return fmt::format("{}", bytes);
}

}  // namespace

bool same_kind(const TuningRow& a, const TuningRow& b) {
  return a.collective == b.collective && a.transport == b.transport && a.ranks == b.ranks;
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

std::vector<TuningRow> overlaid(const std::vector<TuningRow>& rows, std::size_t from, const TuningRow& row) {
  std::vector<TuningRow> result;
  std::size_t begin = 0;
  bool placed = false;
  for (const TuningRow& each : rows) {
    if (begin < from) {
      result.push_back(each);
      result.back().up_to = std::min(each.up_to, from - 1);
    }
    if (!placed && each.up_to >= from) {
      result.push_back(row);
      placed = true;
    }
    if (each.up_to > row.up_to) result.push_back(each);
    if (each.up_to == TuningRow::max) break;
    begin = each.up_to + 1;
  }
  return result;
}

TuningTable TuningTable::parse(std::string_view text, std::string_view source) {
  TuningTable table;
  for (int line = 1; !text.empty(); ++line) {
    const auto words = words_of(text.substr(0, text.find('\n')));
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
    if (words.empty()) continue;
    try {
      const TuningRow row = row_of(words);
      for (const TuningRow& before : table.rows_)
        if (same_kind(before, row) && before.up_to >= row.up_to)
          throw Error(ErrorKind::config,
                      fmt::format("the row above goes up to {} already; let sizes rise", size_text(before.up_to)));
      table.rows_.push_back(row);
    } catch (const Error& error) {
      throw Error(ErrorKind::config, fmt::format("{}, line {}: {}", source, line, error.what()));
    }
  }
  return table;
}

TuningTable TuningTable::read(const std::filesystem::path& path) {
  return parse(engine::tuning_text(path), path.string());
}

std::string TuningTable::text() const {
  std::string all =
      fmt::format("# {:<14} {:<9} {:<5} {:<8} {}\n", "collective", "transport", "ranks", "up to", "algorithm");
  for (const TuningRow& row : rows_)
    all += fmt::format("{:<16} {:<9} {:<5} {:<8} {}{}{}\n", name_of(row.collective), row.transport, row.ranks,
                       size_text(row.up_to), row.algorithm, row.learned ? " " : "", row.learned ? learned : "");
  return all;
}

void TuningTable::replace(const std::vector<TuningRow>& rows) {
  std::erase_if(rows_, [&](const TuningRow& old) {
    return std::ranges::any_of(rows, [&](const TuningRow& row) { return same_kind(row, old); });
  });
  rows_.insert(rows_.end(), rows.begin(), rows.end());
}

std::optional<AlgorithmSpec> TuningTable::find(Collective collective, std::string_view transport, Rank world,
                                               std::size_t bytes) const {
  const TuningRow kind{.collective = collective, .transport = std::string(transport), .ranks = world, .algorithm = {}};
  for (const TuningRow& row : rows_)
    if (same_kind(row, kind) && bytes <= row.up_to)
      return row.algorithm == TuningRow::automatic ? std::nullopt : std::optional(parse_algorithm(row.algorithm));
  return std::nullopt;
}

}  // namespace ranvier
