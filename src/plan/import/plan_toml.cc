// Plans as TOML.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

#include "plan/import/toml_file.h"
#include "ranvier/error.h"
#include "ranvier/plan_file.h"
#include "ranvier/schedule.h"
#include "ranvier/sync.h"
#include "schedule/spelling.h"

namespace ranvier {
namespace {

using plan::in_quotes;

constexpr std::int64_t most_planned_ranks = 1 << 20;
constexpr std::int64_t most_bytes = std::int64_t{1} << 40;
constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();

class PlanReader {
 public:
  explicit PlanReader(const std::filesystem::path& path) : file_(path) {}

  Plan read() const {
    const auto& root = file_.root();
    file_.allow_keys(root, "a plan",
                     {"workload", "communicator", "network", "link_gbit", "latency_us", "ranks", "transport",
                      "compress", "sync", "place", "placement", "bucket_bytes", "because", "prediction", "all_reduce"});
    constexpr std::string_view what = "a plan";
    Plan plan{.workload = file_.text(root, "workload", ""),
              .communicator = file_.text(root, "communicator", ""),
              .network = file_.text(root, "network", "")};
    plan.ranks = static_cast<Rank>(file_.whole(file_.need(root, "ranks", what), 1, most_planned_ranks));
    plan.transport = file_.transport(root, "auto");
    plan.compress = file_.text(root, "compress", "none");
    if (root.contains("link_gbit")) plan.link_gbit = file_.rate(*root.get("link_gbit"));
    if (root.contains("latency_us")) plan.latency_us = file_.latency_us(*root.get("latency_us"));
    sync(plan, root);
    plan.place = file_.text(root, "place", "");
    placement(plan, root);
    if (!names_a_trace(plan.workload) || root.contains("bucket_bytes"))
      plan.bucket_bytes = static_cast<std::size_t>(file_.whole(file_.need(root, "bucket_bytes", what), 1, most_bytes));
    for (const auto& each : file_.list(root, "because")) plan.because.push_back(file_.text(each));
    const auto& prediction = file_.table(file_.need(root, "prediction", what), "prediction");
    file_.allow_keys(prediction, "a prediction",
                     {"step_ns", "compute_ns", "exposed_communication_ns", "speeds", "jitter", "straggle"});
    plan.step_ns = file_.amount(file_.need(prediction, "step_ns", "the prediction"));
    take(plan, prediction, "speeds", take_speeds);
    take(plan, prediction, "jitter", take_jitter);
    take(plan, prediction, "straggle", take_stragglers);
    plan.compute_ns = file_.amount(prediction, "compute_ns", 0);
    plan.exposed_communication_ns = file_.amount(prediction, "exposed_communication_ns", 0);
    for (const auto& each : file_.list(root, "all_reduce")) row(plan, file_.table(each, "a row of all_reduce"));
    return plan;
  }

 private:
  // What is wrong with a text gets its line and column.
  template <class Body>
  void told_there(const toml::node& node, const Body& body) const {
    try {
      body();
    } catch (const Error& wrong) {
      file_.refuse(node.source(), wrong.what());
    }
  }

  void sync(Plan& plan, const toml::table& root) const {
    const auto* node = root.get("sync");
    if (node == nullptr) return;
    plan.sync = file_.text(*node);
    told_there(*node, [&] { check_sync_policy(plan.sync); });
  }

  void take(Plan& plan, const toml::table& prediction, std::string_view key,
            void (*take_words)(std::string_view, UnequalWorkers&)) const {
    const auto* node = prediction.get(key);
    if (node == nullptr) return;
    const std::string words = file_.text(*node);
    told_there(*node, [&] { take_words(words, plan.unequal); });
  }

  void placement(Plan& plan, const toml::table& root) const {
    const auto* node = root.get("placement");
    if (node == nullptr) return;
    std::vector<bool> taken(static_cast<std::size_t>(plan.ranks));
    for (const auto& each : file_.list(root, "placement")) {
      const auto place = file_.whole(each, 0, plan.ranks - 1);
      if (taken[static_cast<std::size_t>(place)])
        file_.refuse(each.source(), fmt::format("place {} is given to two ranks", place));
      taken[static_cast<std::size_t>(place)] = true;
      plan.placement.push_back(static_cast<Rank>(place));
    }
    if (!plan.placement.empty() && plan.placement.size() != taken.size())
      file_.refuse(node->source(), fmt::format("a placement of {} ranks has so many places, and not {}", plan.ranks,
                                               plan.placement.size()));
    if (!plan.placement.empty() && plan.placement.front() != 0)
      file_.refuse(node->source(), "rank 0, where all meet, stays in its own place");
  }

  void row(Plan& plan, const toml::table& table) const {
    constexpr std::string_view what = "a row of all_reduce";
    file_.allow_keys(table, what, {"up_to_bytes", "algorithm"});
    FastestAlgorithm result{.up_to = no_limit, .algorithm = {}};
    if (const auto* node = table.get("up_to_bytes"))
      result.up_to = static_cast<std::size_t>(file_.whole(*node, 1, most_bytes));
    if (!plan.all_reduce.empty() && plan.all_reduce.back().up_to >= result.up_to)
      file_.refuse(table.source(),
                   "sizes have to rise from row to row, and only the last one may leave out up_to_bytes");
    const auto& algorithm = file_.need(table, "algorithm", what);
    result.algorithm = one_spelling(file_.text(algorithm));
    told_there(algorithm, [&] { parse_algorithm(result.algorithm); });
    plan.all_reduce.push_back(std::move(result));
  }

  plan::TomlFile file_;
};

}  // namespace

std::string to_toml(const Plan& plan) {
  std::string text =
      fmt::format("# Written by ranvier plan; ranvier train --plan obeys it. To be read and edited.\nworkload = {}\n",
                  in_quotes(plan.workload));
  if (!plan.communicator.empty()) text += fmt::format("communicator = {}\n", in_quotes(plan.communicator));
  text += fmt::format("network = {}\n", in_quotes(plan.network));
  if (plan.link_gbit > 0) text += fmt::format("link_gbit = {}\nlatency_us = {}\n", plan.link_gbit, plan.latency_us);
  text += fmt::format("ranks = {}\n\ntransport = {}\ncompress = {}\nsync = {}\n", plan.ranks, in_quotes(plan.transport),
                      in_quotes(plan.compress), in_quotes(plan.sync));
  if (!plan.place.empty()) text += fmt::format("place = {}\n", in_quotes(plan.place));
  if (!plan.placement.empty()) text += fmt::format("placement = [{}]\n", fmt::join(plan.placement, ", "));
  if (plan.bucket_bytes > 0) text += fmt::format("bucket_bytes = {}\n", plan.bucket_bytes);
  text += "\nbecause = [\n";
  for (const auto& sentence : plan.because) text += fmt::format("  {},\n", in_quotes(sentence));
  text += fmt::format("]\n\n[prediction]\nstep_ns = {:.0f}\ncompute_ns = {:.0f}\nexposed_communication_ns = {:.0f}\n",
                      plan.step_ns, plan.compute_ns, plan.exposed_communication_ns);
  for (const auto& [key, words] :
       {std::pair("speeds", speeds_in_words(plan.unequal)), std::pair("jitter", jitter_in_words(plan.unequal)),
        std::pair("straggle", stragglers_in_words(plan.unequal))})
    if (!words.empty()) text += fmt::format("{} = {}\n", key, in_quotes(words));
  for (const auto& row : plan.all_reduce) {
    text += "\n[[all_reduce]]\n";
    if (row.up_to != no_limit) text += fmt::format("up_to_bytes = {}\n", row.up_to);
    text += fmt::format("algorithm = {}\n", in_quotes(row.algorithm));
  }
  return text;
}

Plan read_plan(const std::filesystem::path& path) {
  try {
    return PlanReader(path).read();
  } catch (const Error& problem) {
    throw Error(problem.kind(), fmt::format("{} (a plan is what ranvier plan --output writes)", problem.what()));
  }
}

}  // namespace ranvier
