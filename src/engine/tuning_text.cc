#include "engine/tuning_text.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <sstream>
#include <utility>

namespace ranvier::engine {
namespace {

using Lines = std::vector<std::string>;

Lines lines_of(std::string_view text) {
  Lines lines;
  std::istringstream in{std::string(text)};
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// A row with what people have written beside it.
struct Entry {
  Lines above;         // comments and empty lines
  std::string line;    // the row as it stands in the file, without …
  std::string behind;  // … the comment at its end
  TuningRow row;
};

struct Page {
  std::vector<Entry> entries;
  Lines below;  // what stands behind the last row
};

Page page_of(std::string_view text) {
  Page page;
  for (const std::string& line : lines_of(text)) {
    const std::vector<TuningRow> rows = TuningTable::parse(line, "the tuning table").rows();
    if (rows.empty()) {
      page.below.push_back(line);
      continue;
    }
    const std::size_t comment = std::min(line.find('#'), line.size());
    page.entries.push_back({.above = std::exchange(page.below, {}),
                            .line = line.substr(0, comment),
                            .behind = line.substr(comment),
                            .row = rows.front()});
  }
  return page;
}

// The line above all rows that says what their columns are.
std::string heading() { return lines_of(TuningTable{}.text()).front(); }

std::vector<Entry> entries_of(const std::vector<TuningRow>& rows) {
  TuningTable table;
  table.replace(rows);
  const Lines lines = lines_of(table.text());
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < rows.size(); ++i)
    entries.push_back({.above = {}, .line = lines[i + 1], .behind = {}, .row = rows[i]});
  return entries;
}

void inherit(std::vector<Entry>& entries, Entry&& replaced) {
  auto heir = std::ranges::find_if(entries, [&](const Entry& entry) { return entry.row.up_to >= replaced.row.up_to; });
  if (heir == entries.end()) --heir;
  std::ranges::move(replaced.above, std::back_inserter(heir->above));
  if (replaced.behind.empty()) return;
  if (heir->behind.empty())
    heir->behind = "  " + replaced.behind;
  else
    heir->above.push_back(std::move(replaced.behind));
}

std::string text_of(const Page& page) {
  std::string text;
  for (const Entry& entry : page.entries) {
    for (const std::string& line : entry.above) text += line + '\n';
    text += entry.line + entry.behind + '\n';
  }
  for (const std::string& line : page.below) text += line + '\n';
  return text;
}

// Whether two lines are alike but for blanks.
bool same_words(const std::string& a, const std::string& b) {
  std::istringstream first(a), second(b);
  using Words = std::istream_iterator<std::string>;
  return std::equal(Words(first), Words(), Words(second), Words());
}

}  // namespace

std::string with_rows(std::string_view text, const std::vector<TuningRow>& rows) {
  if (rows.empty()) return std::string(text);
  Page before = page_of(text);
  Page after;
  std::vector<Entry> fresh = entries_of(rows);
  std::optional<std::size_t> place;
  for (Entry& entry : before.entries) {
    if (!same_kind(entry.row, rows.front())) {
      after.entries.push_back(std::move(entry));
      continue;
    }
    if (!place) place = after.entries.size();
    inherit(fresh, std::move(entry));
  }
  if (place) {
    after.below = std::move(before.below);
  } else {
    place = after.entries.size();
    fresh.front().above = std::move(before.below);
  }
  after.entries.insert(after.entries.begin() + static_cast<std::ptrdiff_t>(*place), fresh.begin(), fresh.end());
  const Lines lines = lines_of(text);
  const std::string own = heading();
  const bool has_heading = std::ranges::any_of(lines, [&](const std::string& line) { return same_words(line, own); });
  return (has_heading ? "" : own + '\n') + text_of(after);
}

}  // namespace ranvier::engine
