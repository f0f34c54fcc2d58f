// ranvier design: how much bandwidth each dimension of a network should have.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "design/enumerate.h"
#include "design/options.h"
#include "design/problem.h"
#include "design/report.h"
#include "design/study.h"
#include "output.h"
#include "ranvier/error.h"

namespace ranvier::cli {

int run_design(const Arguments& arguments) {
  const auto options = design::parse_options(arguments);
  if (!options) return 0;
  const JsonFile file(options->json_file);
  if (options->study) return design::study(*options, file);
  if (options->enumeration) return design::enumerate(*options, file);
  const ResultFile drawing(options->pareto_file, "--pareto");
  design::Question question = design::question_of(*options, design::load_workloads(*options));
  if (!options->pareto_file.empty() &&
      std::ranges::none_of(question.problem.dollars_per_gbps, [](double each) { return each > 0; }))
    throw Error(ErrorKind::usage,
                "--pareto draws time against cost, and this network costs nothing; give a price by --unit-cost or "
                "--cost, or leave --pareto out");
  const Design result = design::solve(*options, question, question.problem);
  if (options->json_file != "-") design::print(*options, question, result);
  file.write(design::to_json(*options, question, result));
  if (!options->pareto_file.empty()) {
    const auto solver = [&](DesignProblem& limited) { return design::solve(*options, question, limited); };
    drawing.write(pareto_svg(pareto_front(question.problem, 40, solver), to_string(options->network)));
  }
  return 0;
}

}  // namespace ranvier::cli
