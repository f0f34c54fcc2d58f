#include "design/options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cmath>

#include "ranvier/error.h"
#include "ranvier/text.h"

namespace ranvier::design {
namespace {

constexpr auto examples = R"help(
A network is written dimension by dimension, the innermost first: RI(4)_FC(8)_SW(32) is rings of 4 NPUs inside fully
connected groups of 8 inside switches of 32. Bandwidths b0, b1, … are in GB/s (10^9 bytes) per NPU. A workload is a
ready-made one with its settings (tp, dp, pp, ep, batch, sequence, layers, microbatches), or a file: one of ranvier train
--record (.toml), a Chakra trace (.et; --communicator has its process groups where it does not), or a text of ASTRA-sim 1.0,
whose groups its header or --communicator has.
The result comes with a lower bound that it is proven not to miss by more than a millionth.

Ready-made workloads: )help";

constexpr auto more_examples = R"help(

Examples:
  ranvier design --workload gpt3 --network "RI(4)_FC(8)_RI(4)_SW(32)" --budget 1000GB/s
  ranvier design --workload gpt3 --network "RI(4)_FC(8)_RI(4)_SW(32)" --budget 500GB/s --objective time-cost
  ranvier design --workload llama3-70b:tp=8,pp=4 --network "FC(8)_SW(64)" --budget 600GB/s --constraint "b1<=50"
  ranvier design --traffic traffic.json --network "RI(16)_FC(8)_SW(32)" --budget 500GB/s --unit-cost 4,4,57.4
)help";

[[noreturn]] void refuse(const std::string& sentence) { throw Error(ErrorKind::usage, sentence); }

// "1,2.5,4": numbers within the range, as many as there are things.
struct Range {
  double least, most;
  bool or_zero = true;
};
std::string to_string(const Range& range) {
  if (range.least == range.most) return fmt::format("{:g} or 0", range.least);
  return fmt::format("a number from {:g} to {:g}{}", range.least, range.most,
                     range.or_zero && range.least > 0 ? ", or 0" : "");
}
std::vector<double> numbers(const std::string& flag, const std::string& list, std::size_t count,
                            std::string_view things, const Range& range) {
  std::vector<double> result;
  std::string_view left = list;
  for (;;) {
    const auto end = std::min(left.find(','), left.size());
    const auto number = parse_number<double>(left.substr(0, end));
    const bool is_zero = range.or_zero && number && *number == 0;
    if (!number || !(is_zero || (*number >= range.least && *number <= range.most)))
      refuse(fmt::format("{} '{}', column {}: '{}' is not {}", flag, list, list.size() - left.size() + 1,
                         left.substr(0, end), to_string(range)));
    result.push_back(*number);
    if (end == left.size()) break;
    left.remove_prefix(end + 1);
  }
  if (result.size() != count)
    refuse(fmt::format("{} '{}' has {} number{} for {} {}; give one for each", flag, list, result.size(),
                       result.size() == 1 ? "" : "s", count, things.substr(0, things.size() - (count == 1 ? 1 : 0))));
  return result;
}

bool is_yaml(const std::string& name) { return name.ends_with(".yml") || name.ends_with(".yaml"); }

// "2..4" -> what to enumerate.
ShapeSearch enumeration_of(const std::string& range, const std::string& blocks,
                           const std::optional<std::uint64_t>& npus) {
  if (!npus) refuse("--enumerate needs --npus: how many the shapes multiply to");
  ShapeSearch search{.npus = static_cast<std::int64_t>(*npus)};
  const auto dots = range.find("..");
  const auto first = parse_number<int>(std::string_view(range).substr(0, dots));
  const auto last = dots == std::string::npos ? first : parse_number<int>(std::string_view(range).substr(dots + 2));
  if (!first || !last || *first < 1 || *last < *first || *last > 8)
    refuse(fmt::format("--enumerate '{}' is not a range of dimensions from 1 to 8; write 2..4", range));
  search.fewest_dimensions = *first;
  search.most_dimensions = *last;
  if (blocks.empty()) return search;
  search.blocks.clear();
  for (std::string_view left = blocks; !left.empty();) {
    const auto end = std::min(left.find(','), left.size());
    const auto name = left.substr(0, end);
    constexpr std::array<std::string_view, 3> names{"RI", "FC", "SW"};
    if (std::ranges::count(names, name) == 0)
      refuse(fmt::format("--blocks '{}', column {}: {}", blocks, blocks.size() - left.size() + 1,
                         unknown_name("kind of dimension", name, names)));
    search.blocks.push_back(parse_network(fmt::format("{}(2)", name)).dimensions.front().block);
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return search;
}

void refuse_beside_the_study(const CLI::App& app) {
  constexpr std::array<std::string_view, 4> allowed{"--study", "--budget", "--cost", "--json"};
  for (const auto* option : app.get_options())
    if (option->count() > 0 && std::ranges::count(allowed, option->get_name()) == 0)
      refuse(
          fmt::format("--study brings its own networks and workloads, and {} is not of it; give --budget alone, and "
                      "--cost if wanted",
                      option->get_name()));
}

// What changes the bytes that a workload sends.
void refuse_beside_traffic(const CLI::App& app) {
  for (const char* flag : {"--chunk-order", "--partial-groups", "--oversubscription", "--in-network-reduction",
                           "--latency-ns", "--overlap", "--communicator", "--weight"})
    if (app.count(flag) > 0)
      refuse(fmt::format("{} is of a workload, and --traffic says itself what is sent; leave out one of them", flag));
}

}  // namespace

Constraint budget_constraint(const std::string& word, std::size_t dimensions) {
  std::string_view text = word;
  double scale = 1;
  for (const auto& [unit, gbps] : bandwidth_units)
    if (text.ends_with(unit)) {
      text.remove_suffix(unit.size());
      while (text.ends_with(' ')) text.remove_suffix(1);
      scale = gbps;
      break;
    }
  const auto number = parse_number<double>(text);
  if (!number || *number < 0 || !std::isfinite(*number * scale))
    refuse(fmt::format("--budget '{}' is not a bandwidth; write 1000GB/s or 8000Gbit", word));
  if (*number == 0) refuse("a budget of 0 leaves no bandwidth to split; write --budget 1000GB/s");
  if (const double gbps = *number * scale; gbps < least_gbps || gbps > most_gbps)
    refuse(fmt::format("--budget '{}' is not between the {:g} and {:g} GB/s that are designed; write 1000GB/s", word,
                       least_gbps, most_gbps));
  return {.text = "--budget " + word,
          .coefficients = std::vector<double>(dimensions, 1),
          .relation = Relation::equal,
          .limit = *number * scale,
          .budget = true};
}

std::optional<Options> parse_options(const cli::Arguments& arguments) {
  Options options;
  std::string network, budget, objective = "time", unit_cost, cost_file, weights, order = "fixed", oversubscription,
                               latency, reduction, links, enumerate, blocks;
  std::optional<std::uint64_t> nics;
  std::vector<std::string> constraints;
  std::optional<std::uint64_t> npus;
  CLI::App app("Split bandwidth over the dimensions of a network, for time or for time x cost.", "ranvier design");
  app.footer(fmt::format("{}{}{}", examples, fmt::join(workload_names(), ", "), more_examples));
  app.add_option("--network", network, "the network, or a file of LIBRA's that describes it")->type_name("SHAPE|FILE");
  app.add_option("--workload", options.workloads, "what trains on it; several may be given")
      ->type_name("NAME|FILE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--weight", weights, "how much each workload counts; default: all the same")->type_name("W,W,…");
  app.add_option("--traffic", options.traffic_file, "instead of a workload: times and bytes per dimension, as JSON")
      ->type_name("FILE");
  app.add_option(
         "--communicator", options.communicator_file,
         "which dimensions each pass of an ASTRA-sim text spans, or which ranks the process groups of a trace have")
      ->type_name("FILE");
  app.add_option("--budget", budget,
                 "the bandwidth of one NPU, all dimensions together: 1000GB/s, or 8000Gbit a second")
      ->type_name("RATE");
  app.add_option("--constraint", constraints,
                 "a linear (in)equality such as b0>=b1 or 2*(b0+b1)/3<=300; may be repeated")
      ->type_name("EXPR");
  cli::add_name(app, "--objective", objective, "what is to be least", {"time", "time-cost"});
  app.add_option("--unit-cost", unit_cost, "dollars per GB/s of one NPU, by dimension")->type_name("$,$,…");
  app.add_option("--cost", cost_file, "a cost model of LIBRA's, in place of its published one")->type_name("FILE");
  cli::add_count(app, "--npus", npus, "refuse a network that has not so many", 2);
  cli::add_name(app, "--chunk-order", order, "in which order chunks take the dimensions", {"fixed", "mixed"});
  app.add_flag("--partial-groups", options.step.effects.partial_groups,
               "a group inside a fully connected dimension has only its own links");
  app.add_option("--oversubscription", oversubscription, "by dimension: how many times less its core carries")
      ->type_name("X,X,…");
  app.add_option("--in-network-reduction", reduction, "by dimension: 1 where switches reduce, else 0")
      ->type_name("0|1,…");
  app.add_option("--latency-ns", latency, "by dimension: from one NPU to the next")->type_name("NS,NS,…");
  app.add_flag(
      "--overlap", options.overlap,
      "what nothing waits for travels beside computing: gradients in the backward pass; of a trace its own graph");
  cli::add_count(app, "--survive-failure", nics, "the best worst case if any cable or one of N NICs is missing", 1,
                 1024);
  app.add_option("--link-gbps", links, "by dimension: bandwidth comes in whole links of so many GB/s; 0: any")
      ->type_name("GB,GB,…");
  app.add_option("--enumerate", enumerate, "try every shape with so many dimensions, and list the best")
      ->type_name("A..B");
  app.add_option("--blocks", blocks, "of --enumerate: which kinds of dimensions")->type_name("RI,FC,SW");
  app.add_flag("--study", options.study,
               "the same workloads on networks of two, three and four dimensions, as Markdown");
  app.add_option("--pareto", options.pareto_file, "draw time against cost there")->type_name("FILE.svg");
  app.add_option("--json", options.json_file,
                 "write the design with its proof there; - is stdout, in place of the text")
      ->type_name("FILE");
  if (const auto code = cli::parse(app, arguments)) return std::nullopt;
  std::vector<cli::NamedFile> read{{"--network", network},
                                   {"--traffic", options.traffic_file},
                                   {"--communicator", options.communicator_file},
                                   {"--cost", cost_file}};
  for (const auto& workload : options.workloads) read.push_back({"--workload", workload});
  cli::refuse_overwriting({{"--pareto", options.pareto_file}, {"--json", options.json_file}}, read);

  if (options.study) {
    refuse_beside_the_study(app);
    options.budget = budget.empty() ? "500GB/s" : budget;
    budget_constraint(options.budget, 1);
    if (!cost_file.empty()) options.costs = read_libra_costs(cost_file);
    return options;
  }
  if (!blocks.empty() && enumerate.empty()) refuse("--blocks is of --enumerate; add --enumerate 2..4, or leave it out");
  if (!options.traffic_file.empty()) refuse_beside_traffic(app);
  if (!enumerate.empty()) {
    if (!network.empty()) refuse("--enumerate tries every network, and --network names one; leave out one of them");
    if (!constraints.empty() || !unit_cost.empty() || !links.empty() || !oversubscription.empty() || !latency.empty() ||
        !reduction.empty() || !options.pareto_file.empty() || !options.traffic_file.empty() ||
        is_yaml(options.communicator_file))
      refuse("with --enumerate dimensions differ from shape to shape: give --budget, and nothing by dimension");
    options.enumeration = enumeration_of(enumerate, blocks, npus);
    if (options.workloads.empty()) refuse("--enumerate needs --workload: what is to be sent");
    if (budget.empty()) refuse("--enumerate needs --budget 1000GB/s");
    // The first shape stands in for the checks below.
    options.network = parse_network(fmt::format("SW({})", *npus));
  } else if (network.empty()) {
    refuse("design needs --network, such as \"RI(4)_FC(8)_SW(32)\"");
  } else {
    options.network = is_yaml(network) ? read_libra_network(network) : parse_network(network);
  }
  options.budget = budget;
  const std::size_t dimensions = options.network.dimensions.size();
  if (npus && static_cast<std::int64_t>(*npus) != options.network.npus())
    refuse(fmt::format("the dimensions of {} multiply to {} NPUs, not to the {} of --npus", to_string(options.network),
                       options.network.npus(), *npus));
  if (options.workloads.empty() == options.traffic_file.empty())
    refuse("design needs either --workload or --traffic: what is to be sent");
  options.weights.assign(options.workloads.size(), 1);
  if (!weights.empty())
    options.weights = numbers("--weight", weights, options.workloads.size(), "workloads", {1e-9, 1e9});
  if (!options.weights.empty() && std::ranges::count(options.weights, 0.0) == std::ssize(options.weights))
    refuse(fmt::format("--weight '{}' leaves no workload that counts; give one a number above 0", weights));

  if (budget.empty() && constraints.empty())
    refuse("design needs a limit on bandwidth: --budget 1000GB/s, or --constraint \"b0 + b1 <= 1000\"");
  if (!budget.empty()) options.constraints.push_back(budget_constraint(budget, dimensions));
  if (!links.empty()) options.link_gbps = numbers("--link-gbps", links, dimensions, "dimensions", {1e-3, 1e9});
  // Whole links seldom add up to it exactly.
  if (!budget.empty() && std::ranges::any_of(options.link_gbps, [](double each) { return each > 0; }))
    options.constraints.back().relation = Relation::at_most;
  for (const auto& text : constraints)
    for (auto& constraint : parse_constraints(text, dimensions)) options.constraints.push_back(std::move(constraint));
  options.objective = objective == "time" ? Objective::time : Objective::time_cost;
  if (!unit_cost.empty() && !cost_file.empty())
    refuse("--unit-cost and --cost both say what bandwidth costs; give one");
  if (!cost_file.empty()) options.costs = read_libra_costs(cost_file);
  options.unit_costs = unit_cost.empty() ? unit_costs(options.network, options.costs)
                                         : numbers("--unit-cost", unit_cost, dimensions, "dimensions", {1e-6, 1e9});
  options.step.order = order == "fixed" ? ChunkOrder::fixed : ChunkOrder::mixed;
  auto& effects = options.step.effects;
  if (!oversubscription.empty())
    effects.oversubscription =
        numbers("--oversubscription", oversubscription, dimensions, "dimensions", {1, 1e6, false});
  if (!latency.empty()) effects.latency_ns = numbers("--latency-ns", latency, dimensions, "dimensions", {0, 1e12});
  if (!reduction.empty())
    for (const double each : numbers("--in-network-reduction", reduction, dimensions, "dimensions", {1, 1}))
      effects.in_network_reduction.push_back(each != 0);
  if (nics) options.nics = static_cast<int>(*nics);
  return options;
}

}  // namespace ranvier::design
