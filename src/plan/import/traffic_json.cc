// Traffic as numbers, from a JSON file.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "plan/import/text_file.h"
#include "ranvier/design_files.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

using nlohmann::json;

class Reader {
 public:
  Reader(std::string file, std::size_t dimensions) : file_(std::move(file)), dimensions_(dimensions) {}

  StepTime read(const json& root) const {
    expect(root.is_object(), "the file", "an object with compute_ns and terms");
    for (const auto& [key, value] : root.items())
      expect(key == "compute_ns" || key == "terms", key, "compute_ns or terms: it is no key of traffic");
    StepTime step{.dimensions = dimensions_, .terms = {}, .cases = {{}}};
    step.cases[0].constant_ns = number(root, "compute_ns", "compute_ns", 0);
    const json terms = root.value("terms", json::array());
    expect(terms.is_array(), "terms", "a list");
    for (std::size_t k = 0; k < terms.size(); ++k) {
      const std::string where = fmt::format("terms[{}]", k);
      const json& term = terms[k];
      expect(term.is_object(), where, "an object with weight and bytes");
      for (const auto& [key, value] : term.items())
        expect(key == "weight" || key == "bytes", where + "." + key, "weight or bytes: it is no key of a term");
      step.cases[0].weights.push_back(number(term, "weight", where + ".weight", 1));
      const json bytes = term.value("bytes", json());
      expect(bytes.is_array() && bytes.size() == dimensions_, where + ".bytes",
             fmt::format("a list of {} numbers, one for each dimension of the network", dimensions_));
      step.terms.emplace_back();
      for (std::size_t i = 0; i < dimensions_; ++i) {
        expect(is_amount(bytes[i]), fmt::format("{}.bytes[{}]", where, i), "a number of bytes, at least 0");
        step.terms.back().loads.push_back({std::uint32_t{1} << i, bytes[i].get<double>()});
      }
    }
    return step;
  }

 private:
  static bool is_amount(const json& value) { return value.is_number() && value.get<double>() >= 0; }

  void expect(bool right, const std::string& where, const std::string& what) const {
    if (!right) throw Error(ErrorKind::config, fmt::format("{}: {} is not {}", file_, where, what));
  }
  double number(const json& object, const char* key, const std::string& where, double otherwise) const {
    if (!object.contains(key)) return otherwise;
    expect(is_amount(object[key]), where, "a number, at least 0");
    return object[key].get<double>();
  }

  std::string file_;
  std::size_t dimensions_;
};

}  // namespace

StepTime read_traffic(const std::filesystem::path& path, std::size_t dimensions) {
  const std::string text = plan::read_text(path);
  json root;
  try {
    root = json::parse(text);
  } catch (const json::parse_error& problem) {
    const auto [line, column] = plan::place_of(text, problem.byte > 0 ? problem.byte - 1 : 0);
    throw Error(ErrorKind::config, fmt::format("{}, line {}, column {}: this is no JSON", path.string(), line, column));
  } catch (const json::out_of_range&) {  // the only other one of parse(), which does not say where
    throw Error(ErrorKind::config, fmt::format("{}: it holds a number that is too large for a double", path.string()));
  }
  return Reader(path.string(), dimensions).read(root);
}

}  // namespace ranvier
