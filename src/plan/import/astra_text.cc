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

class AstraReader {
 public:
  AstraReader(const std::filesystem::path& path, std::string_view text, AstraGroups groups)
      : file_(path.string()), text_(text), groups_(groups), workload_{.name = path.stem().string()} {}

  Workload read() {
    std::vector<std::vector<Word>> lines;
    for (std::size_t begin = 0; begin < text_.size();) {
      const std::size_t end = std::min(text_.find('\n', begin), text_.size());
      auto words = words_of(text_, begin, end);
      if (!words.empty() && !words[0].text.starts_with('#')) lines.push_back(std::move(words));
      begin = end + 1;
    }
    // A kind of parallelism, then how many layers follow.
    std::vector<Word> header;
    if (lines.size() >= 2 && lines[1].size() == 1 && !is_layer(lines[0])) {
      const Word count = lines[1][0];
      header = std::move(lines[0]);
      lines.erase(lines.begin(), lines.begin() + 2);
      if (groups_ != AstraGroups::elsewhere) take_groups(header);
      if (number(count) != static_cast<double>(lines.size()))
        refuse(count.offset,
               fmt::format("{} layers are to follow, and here are {}; is the file whole?", count.text, lines.size()));
    }
    if (header.empty() && !lines.empty() && groups_ == AstraGroups::header)
      throw Error(ErrorKind::usage,
                  fmt::format("{} does not say which NPUs communicate; add --communicator FILE, or begin it with two "
                              "lines: HYBRID_TRANSFORMER {} 8, and how many layers follow",
                              file_, tensor_groups));
    for (const auto& line : lines) workload_.layers.push_back(layer(line));
    if (workload_.layers.empty())
      throw Error(ErrorKind::config, fmt::format("{}, line 1, column 1: there is no layer in it", file_));
    compute_again(header);
    return std::move(workload_);
  }

 private:
  static constexpr std::size_t columns = 12;

  [[noreturn]] void refuse(std::size_t offset, const std::string& what) const {
    const auto [line, column] = plan::place_of(text_, offset);
    throw Error(ErrorKind::config, fmt::format("{}, line {}, column {}: {}", file_, line, column, what));
  }

  // A header may have as many words.
  static bool is_layer(const std::vector<Word>& line) {
    return line.size() == columns && parse_number<double>(line[1].text);
  }

  // "model_parallel_NPU_group: 4", or a list behind its length: "checkpoints: 2 0 8".
  int whole_number(const Word& word, int least, int most) const {
    const auto value = parse_number<int>(word.text);
    if (!value || *value < least || *value > most)
      refuse(word.offset, fmt::format("'{}' is no whole number from {} to {}", plan::quotable(word.text), least, most));
    return *value;
  }
  std::vector<int> numbers_behind(const std::vector<Word>& header, std::string_view key, int most) const {
    std::vector<int> numbers;
    const auto found = std::ranges::find(header, key, &Word::text);
    if (found == header.end()) return numbers;
    const auto need = [&](std::ptrdiff_t place) {
      if (header.end() - found <= place) refuse(found->offset, fmt::format("{} is to be followed by numbers", key));
      return found[place];
    };
    const int count = whole_number(need(1), 0, static_cast<int>(workload_.layers.size()));
    for (int i = 0; i < count; ++i) numbers.push_back(whole_number(need(2 + i), 0, most));
    return numbers;
  }

  // Which NPUs communicate, as far as it does not depend on ASTRA-sim's network: workload/Workload.cc there.
  void take_groups(const std::vector<Word>& header) {
    constexpr std::string_view of_all[] = {"DATA", "MODEL", "MICRO", "HYBRID_DLRM", "HYBRID_DLRM_ENHANCED"};
    const std::string_view kind = header[0].text;
    if (std::ranges::count(of_all, kind) > 0) return;
    if (kind != "HYBRID_TRANSFORMER" && kind != with_recomputation)
      refuse(header[0].offset,
             fmt::format("{} does not say how many NPUs divide the model; write HYBRID_TRANSFORMER {} 8, or give "
                         "the groups of each pass with --communicator",
                         plan::quotable(kind), tensor_groups));
    const auto found = std::ranges::find(header, tensor_groups, &Word::text);
    if (header.end() - found < 2)
      refuse(header[0].offset, fmt::format("{} needs {} and how many NPUs divide the model", kind, tensor_groups));
    constexpr int most = 1 << 24;
    workload_.degrees.tensor = whole_number(found[1], 1, most);
    by_role_ = true;
  }

  // From the last checkpoint on, where the backward pass comes to a layer that asks for it.
  void compute_again(const std::vector<Word>& header) {
    if (header.empty() || header[0].text != with_recomputation) return;
    auto& layers = workload_.layers;
    const int last = static_cast<int>(layers.size()) - 1;
    auto checkpoints = numbers_behind(header, "checkpoints:", last);
    std::ranges::sort(checkpoints);
    std::vector<bool> again(layers.size());
    for (const int asks : numbers_behind(header, "checkpoint_initiates:", last)) {
      const auto behind = std::ranges::upper_bound(checkpoints, asks);
      const int from = behind == checkpoints.begin() ? 0 : *std::prev(behind);
      for (int i = asks; i >= from && !again[i]; --i) {
        again[i] = true;
        const Phase& forward = layers[i].forward;
        Phase& backward = layers[i].input_gradient;
        backward.compute_ns += forward.compute_ns;
        backward.communications.insert(backward.communications.begin(), forward.communications.begin(),
                                       forward.communications.end());
      }
    }
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
            .forward = phase(line, 2, by_role_ ? Role::tensor : Role::forward),
            .input_gradient = phase(line, 5, by_role_ ? Role::tensor : Role::input_gradient),
            .weight_gradient = phase(line, 8, by_role_ ? Role::data : Role::weight_gradient)};
  }

  static constexpr std::string_view tensor_groups = "model_parallel_NPU_group:";
  static constexpr std::string_view with_recomputation = "HYBRID_TRANSFORMER_FWD_IN_BCKWD";

  std::string file_;
  std::string_view text_;
  AstraGroups groups_;
  bool by_role_ = false;
  Workload workload_;
};

}  // namespace

Workload read_astra_workload(const std::filesystem::path& path, AstraGroups groups) {
  const std::string text = plan::read_text(path);
  return AstraReader(path, text, groups).read();
}

}  // namespace ranvier
