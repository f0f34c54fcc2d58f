// The text workloads of ASTRA-sim 1.0. S. Rashidi, S. Sridharan, S. Srinivasan, T. Krishna: ASTRA-SIM: Enabling SW/HW
// co-design exploration for distributed DL training platforms. ISPASS 2020.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <vector>

#include "plan/import/text_file.h"
#include "ranvier/design_files.h"
#include "ranvier/error.h"
#include "ranvier/text.h"

namespace ranvier {
namespace {

struct Word {
  std::string_view text;
  std::size_t offset;  // in the file
};

std::vector<Word> words_of(std::string_view text, std::size_t begin, std::size_t end) {
  const auto is_blank = [&](std::size_t i) { return std::isspace(static_cast<unsigned char>(text[i])) != 0; };
  std::vector<Word> words;
  for (std::size_t i = begin; i < end;) {
    if (is_blank(i)) {
      ++i;
      continue;
    }
    const std::size_t start = i;
    while (i < end && !is_blank(i)) ++i;
    words.push_back({text.substr(start, i - start), start});
  }
  return words;
}

class Reader {
 public:
  Reader(std::string file, std::string_view text, bool by_pass)
      : file_(std::move(file)), text_(text), by_pass_(by_pass) {}

  std::vector<Layer> read() {
    std::vector<std::vector<Word>> lines;
    for (std::size_t begin = 0; begin < text_.size();) {
      const std::size_t end = std::min(text_.find('\n', begin), text_.size());
      if (auto words = words_of(text_, begin, end); !words.empty()) lines.push_back(std::move(words));
      begin = end + 1;
    }
    // A kind of parallelism, then how many layers follow.
    if (lines.size() >= 2 && lines[0].size() < columns && lines[1].size() == 1) {
      const Word count = lines[1][0];
      lines.erase(lines.begin(), lines.begin() + 2);
      if (number(count) != static_cast<double>(lines.size()))
        refuse(count.offset,
               fmt::format("{} layers are to follow, and here are {}; is the file whole?", count.text, lines.size()));
    }
    std::vector<Layer> layers;
    layers.reserve(lines.size());
    for (const auto& line : lines) layers.push_back(layer(line));
    return layers;
  }

 private:
  static constexpr std::size_t columns = 12;

  [[noreturn]] void refuse(std::size_t offset, const std::string& what) const {
    const auto [line, column] = plan::place_of(text_, offset);
    throw Error(ErrorKind::config, fmt::format("{}, line {}, column {}: {}", file_, line, column, what));
  }

  double number(const Word& word) const {
    const auto value = parse_number<double>(word.text);
    if (!value || !(*value >= 0))
      refuse(word.offset, fmt::format("'{}' is not a number that is at least 0", plan::quotable(word.text)));
    return *value;
  }

  double nanoseconds(const Word& word) const {
    constexpr double most = 1e18;
    const double value = number(word);
    if (value > most)
      refuse(word.offset, fmt::format("{} ns are more than the {:g} of any step", plan::quotable(word.text), most));
    return value;
  }

  std::optional<Collective> collective(const Word& word) const {
    std::string name(word.text);
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
    constexpr std::pair<std::string_view, std::optional<Collective>> names[] = {
        {"NONE", std::nullopt},
        {"ALLREDUCE", Collective::all_reduce},
        {"ALLGATHER", Collective::all_gather},
        {"REDUCESCATTER", Collective::reduce_scatter},
        {"ALLTOALL", Collective::all_to_all}};
    std::vector<std::string_view> known;
    for (const auto& [known_name, value] : names) {
      if (known_name == name) return value;
      known.push_back(known_name);
    }
    refuse(word.offset, unknown_name("collective", plan::quotable(word.text), known));
  }

  Phase phase(const std::vector<Word>& line, std::size_t first, Role role) const {
    Phase result{.compute_ns = nanoseconds(line[first])};
    const auto kind = collective(line[first + 1]);
    const double bytes = number(line[first + 2]);
    if (bytes > plan::most_collective_bytes)
      refuse(line[first + 2].offset, fmt::format("{} bytes are more than the {:g} of any collective",
                                                 plan::quotable(line[first + 2].text), plan::most_collective_bytes));
    if (kind && bytes > 0) result.communications.push_back({*kind, bytes, role});
    return result;
  }

  Layer layer(const std::vector<Word>& line) const {
    if (line.size() != columns)
      refuse(line.size() > columns ? line[columns].offset : line.back().offset,
             fmt::format("a layer has {} columns, and here are {}", columns, line.size()));
    // Neither counts here; what is no number shows that columns are mixed up.
    for (const Word& unused : {line[1], line[11]})
      if (!parse_number<double>(unused.text))
        refuse(unused.offset, fmt::format("'{}' is not a number", plan::quotable(unused.text)));
    return {.name = std::string(line[0].text),
            .forward = phase(line, 2, by_pass_ ? Role::forward : Role::tensor),
            .input_gradient = phase(line, 5, by_pass_ ? Role::input_gradient : Role::tensor),
            .weight_gradient = phase(line, 8, by_pass_ ? Role::weight_gradient : Role::data)};
  }

  std::string file_;
  std::string_view text_;
  bool by_pass_;
};

}  // namespace

Workload read_astra_workload(const std::filesystem::path& path, const Degrees& degrees, bool by_pass) {
  const std::string text = plan::read_text(path);
  Workload workload{.name = path.stem().string(), .degrees = degrees, .layers = {}};
  workload.layers = Reader(path.string(), text, by_pass).read();
  if (workload.layers.empty())
    throw Error(ErrorKind::config, fmt::format("{}, line 1, column 1: there is no layer in it", path.string()));
  return workload;
}

}  // namespace ranvier
