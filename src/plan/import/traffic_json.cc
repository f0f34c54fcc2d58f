// Traffic as numbers, from a JSON file.
#include <fmt/format.h>

#include "plan/import/json_file.h"
#include "ranvier/design_files.h"

namespace ranvier {

StepTime read_traffic(const std::filesystem::path& path, std::size_t dimensions) {
  using Place = plan::json::json_pointer;
  const plan::JsonFile file(path);
  file.allow_keys(Place(), {"compute_ns", "terms"});
  StepTime step{.dimensions = dimensions, .terms = {}, .cases = {{}}};
  step.cases[0].constant_ns = file.amount(Place("/compute_ns"), "a number of ns from 0 to 1e24", 0);
  const Place terms("/terms");
  if (!file.root().contains(terms)) return step;
  if (!file.root()[terms].is_array()) file.refuse(terms, "a list");
  for (std::size_t k = 0; k < file.root()[terms].size(); ++k) {
    const Place term = terms / k;
    file.allow_keys(term, {"weight", "bytes"});
    // As of --weight.
    constexpr double least = 1e-9, most = 1e9;
    constexpr auto weights = "a number from 1e-9 to 1e9, or 0";
    const double weight = file.amount(term / "weight", weights, 1);
    if (weight != 0 && !(weight >= least && weight <= most)) file.refuse(term / "weight", weights);
    step.cases[0].weights.push_back(weight);
    const std::string list = fmt::format("a list of {} numbers, one for each dimension of the network", dimensions);
    const auto& bytes = file.need(term / "bytes", list);
    if (!bytes.is_array() || bytes.size() != dimensions) file.refuse(term / "bytes", list);
    step.terms.emplace_back();
    for (std::size_t i = 0; i < dimensions; ++i)
      step.terms.back().loads.push_back(
          {std::uint32_t{1} << i, file.amount(term / "bytes" / i, "a number of bytes from 0 to 1e24")});
  }
  return step;
}

}  // namespace ranvier
