// Schedules as people draw them.
#include <fmt/format.h>

#include <algorithm>

#include "ranvier/schedule.h"

namespace ranvier {
namespace {

std::string chunks(const Step& step, Place place) {
  const std::string first = fmt::format("{}{}", place.chunk, std::string(place.slot, '\''));
  return step.chunks == 1 ? first : fmt::format("{}-{}", first, place.chunk + step.chunks - 1);
}

std::string symbol(const Step& step) {
  const char* const done = step.completes ? "!" : "";
  switch (step.action) {
    case Action::send:
      return fmt::format("{}>{}", chunks(step, step.from), step.peer);
    case Action::recv:
      return fmt::format("{}<{}", chunks(step, step.to), step.peer);
    case Action::recv_reduce:
      return fmt::format("{}+{}{}", chunks(step, step.to), step.peer, done);
    case Action::copy:
      return fmt::format("{}=", chunks(step, step.to));
    case Action::reduce:
      return fmt::format("{}+{}", chunks(step, step.to), done);
  }
  return "?";
}

}  // namespace

std::string draw(const Schedule& schedule) {
  const auto world = static_cast<std::size_t>(schedule.world);
  std::vector<std::vector<std::string>> rows;  // by round, then rank
  for (std::size_t rank = 0; rank < world; ++rank)
    for (const Step& step : schedule.program(static_cast<Rank>(rank))) {
      if (rows.size() <= step.round) rows.resize(step.round + std::size_t{1}, std::vector<std::string>(world));
      std::string& cell = rows[step.round][rank];
      if (!cell.empty()) cell += ' ';
      cell += symbol(step);
    }

  std::vector<std::size_t> widths(world);
  for (std::size_t rank = 0; rank < world; ++rank) {
    widths[rank] = fmt::formatted_size("rank {}", rank);
    for (const auto& row : rows) widths[rank] = std::max(widths[rank], row[rank].size());
  }

  const auto line = [&](std::string text, const auto& cell) {
    for (std::size_t rank = 0; rank < world; ++rank) text += fmt::format("  {:<{}}", cell(rank), widths[rank]);
    text.erase(text.find_last_not_of(' ') + 1);
    return text + '\n';
  };
  std::string drawing = fmt::format("{} by {}: {} ranks, {} chunk{}, {} round{}\n", name_of(schedule.collective),
                                    schedule.algorithm, schedule.world, schedule.chunks,
                                    schedule.chunks == 1 ? "" : "s", rows.size(), rows.size() == 1 ? "" : "s");
  drawing += "c>r: chunk c to rank r   c<r: from r   c+r: reduced with r's   !: complete   c=: copied   c+: reduced\n";
  drawing += line("round", [](std::size_t rank) { return fmt::format("rank {}", rank); });
  for (std::size_t round = 0; round < rows.size(); ++round)
    drawing += line(fmt::format("{:5}", round), [&](std::size_t rank) { return rows[round][rank]; });
  return drawing;
}

}  // namespace ranvier
