// Where a value stands in the text of a JSON file: parsers do not keep it, and only who is wrong has to know.
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plan/import/json_file.h"
#include "ranvier/text.h"

namespace ranvier::plan {
namespace {

constexpr std::string_view blanks = " \t\r\n";

// Goes through a text that is known to be JSON.
class Walk {
 public:
  explicit Walk(std::string_view text) : text_(text), at_(text.starts_with(byte_order_mark) ? 3 : 0) { skip_blanks(); }

  // Into the item of a list, or the value of an object.
  void enter(const std::string& token) {
    const bool is_list = text_[at_] == '[';
    step();
    if (is_list)
      enter_item(parse_number<std::size_t>(token).value_or(0));
    else
      enter_value(token);
  }

  std::size_t value() const { return at_; }
  std::size_t key() const { return key_; }

  // Goes to the end; without a stack of its own calls, since files may be deep.
  std::optional<std::size_t> repeated_key() {
    std::vector<std::set<std::string>> keys;  // of the objects and lists that are open
    while (at_ < text_.size()) {
      const std::size_t place = at_;
      const char first = text_[at_];
      if (first == '"') {
        const std::string_view text = take_string();
        const bool is_key = at_ < text_.size() && text_[at_] == ':';
        if (is_key && !keys.back().insert(json::parse(text).get<std::string>()).second) return place;
        continue;
      }
      if (first == '{' || first == '[') keys.emplace_back();
      if (first == '}' || first == ']') keys.pop_back();
      step();
    }
    return std::nullopt;
  }

 private:
  static constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

  void skip_blanks() { at_ = std::min(text_.find_first_not_of(blanks, at_), text_.size()); }
  // Over a bracket, comma or colon.
  void step() {
    ++at_;
    skip_blanks();
  }

  std::string_view take_string() {
    const std::size_t begin = at_++;
    while (text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    const std::string_view taken = text_.substr(begin, ++at_ - begin);
    skip_blanks();
    return taken;
  }

  // Whatever is inside, without a stack: deep files are no deeper for it.
  void skip_value() {
    std::size_t depth = 0;
    do {
      const char first = text_[at_];
      if (first == '"') {
        take_string();
        continue;
      }
      if (first == '{' || first == '[') ++depth;
      if (first == '}' || first == ']') --depth;
      if (std::string_view("{}[],:").find(first) != std::string_view::npos) {
        step();
        continue;
      }
      at_ = std::min(text_.find_first_of(" \t\r\n,]}", at_), text_.size());
      skip_blanks();
    } while (depth > 0);
  }

  void enter_item(std::size_t number) {
    for (; number > 0; --number) {
      skip_value();
      step();
    }
  }

  void enter_value(const std::string& name) {
    for (;;) {
      key_ = at_;
      const bool is_it = json::parse(take_string()) == name;
      step();
      if (is_it) return;
      skip_value();
      step();
    }
  }

  std::string_view text_;
  std::size_t at_;
  std::size_t key_ = 0;  // of the value that was entered last
};

}  // namespace

std::size_t place_in_json(std::string_view text, const json::json_pointer& where, bool of_key) {
  std::vector<std::string> tokens;
  for (json::json_pointer rest = where; !rest.empty(); rest.pop_back()) tokens.push_back(rest.back());
  Walk walk(text);
  for (auto token = tokens.rbegin(); token != tokens.rend(); ++token) walk.enter(*token);
  return of_key ? walk.key() : walk.value();
}

std::optional<std::size_t> repeated_key(std::string_view text) { return Walk(text).repeated_key(); }

}  // namespace ranvier::plan
