#include "train/report.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "integrations/trainer/run_settings.h"
#include "machine.h"
#include "ranvier/text.h"
#include "report/bottleneck.h"
#include "train/plan.h"

namespace ranvier::train {
namespace {

double samples_per_second(const Report& report) {
  const auto& result = report.result;
  return result.seconds > 0 ? static_cast<double>(result.samples_here) / result.seconds : 0;
}

double epochs(const trainer::TrainResult& result) {
  return static_cast<double>(result.steps) / static_cast<double>(result.steps_per_epoch);
}

// What a worker sent of each parameter and step, divided by the 2 (n - 1) / n times that an all_reduce sends it: 32 if
// gradients travel as they are, whatever the number of workers.
double bits_sent(const Report& report) {
  if (report.options.trainer.parallel != "none") return 0;  // of parts of a model there is no such number
  const double world = report.communicator.world();
  const double times = static_cast<double>(report.result.steps_here) * static_cast<double>(report.result.parameters) *
                       2 * (world - 1) / world;
  return times > 0 ? 8 * report.result.bytes_sent_per_worker / times : 0;
}

std::string bits_per_parameter(const Report& report) {
  const double bits = bits_sent(report);
  if (bits <= 0) return "";
  const std::string beside = bits < 32 / 1.05   ? fmt::format(" ({:.1f} x fewer than f32)", 32 / bits)
                             : bits > 32 * 1.05 ? fmt::format(" ({:.1f} x as many as f32)", bits / 32)
                                                : "";
  return fmt::format(", {:.3g} bits a parameter and step{}", bits, beside);
}

// What went on inside nodes, and what between them, where there are several.
std::string synchronization(const Report& report) {
  const auto& result = report.result;
  std::string text = fmt::format("{}: ", report.options.trainer.sync);
  if (result.rounds_between == 0) return text + fmt::format("{} rounds", result.rounds_inside);
  return text + fmt::format("{} rounds between nodes with {} a worker, {} inside with {}", result.rounds_between,
                            human_bytes(result.bytes_between), result.rounds_inside, human_bytes(result.bytes_inside));
}

// "102,130"
std::string grouped(std::size_t number) {
  if (number < 1000) return fmt::format("{}", number);
  return fmt::format("{},{:03}", grouped(number / 1000), number % 1000);
}

using Rows = std::vector<std::pair<std::string, std::string>>;

// Without the sign that x86 gives to what is none.
double unsigned_nan(double value) { return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value; }

Rows score_rows(const trainer::Score& score) {
  Rows rows;
  if (score.accuracy) rows.emplace_back("test accuracy", fmt::format("{:.2f} %", *score.accuracy * 100));
  if (score.bits_per_character)
    rows.emplace_back("bits per character", fmt::format("{:.3f}", unsigned_nan(*score.bits_per_character)));
  if (score.frechet_distance)
    rows.emplace_back("Fréchet distance", fmt::format("{:.4f}", unsigned_nan(*score.frechet_distance)));
  return rows;
}

// The step by which a loss was no finite number any more.
std::optional<std::size_t> diverged_at(const trainer::TrainResult& result) {
  for (const auto& each : result.history)
    if (!std::isfinite(each.loss.value_or(0)) || !std::isfinite(each.test.loss)) return each.step;
  return std::nullopt;
}

nlohmann::json or_null(const std::optional<double>& number) {
  return number ? nlohmann::json(*number) : nlohmann::json();
}

Rows plan_rows(const Report& report) {
  if (!report.options.plan) return {};
  const PlanComparison found = compare(*report.options.plan, report.result);
  Rows rows;
  if (found.measured_ns > 0)  // of a resumed run that had ended there is none
    rows.emplace_back("step, as planned",
                      fmt::format("{:.2f} ms predicted, {:.2f} measured ({:+.0f} %)", found.predicted_ns / 1e6,
                                  found.measured_ns / 1e6, found.error * 100));
  for (const auto& each : report.result.changes)
    rows.emplace_back(fmt::format("planned anew at step {}", each.step), each.change.reason);
  if (!found.advice.empty()) rows.emplace_back("the plan is wrong", found.advice);
  return rows;
}

nlohmann::json plan_json(const Report& report) {
  if (!report.options.plan) return nullptr;
  const PlanComparison found = compare(*report.options.plan, report.result);
  nlohmann::json changes = nlohmann::json::array();
  for (const auto& each : report.result.changes)
    changes.push_back({{"step", each.step},
                       {"reason", each.change.reason},
                       {"compress", each.change.compress},
                       {"bucket_bytes", each.change.bucket_bytes},
                       {"expected_step_ns", each.change.expected.step * 1e9},
                       {"measured_step_ns", each.measured.step * 1e9}});
  return {{"predicted_step_ns", found.predicted_ns},
          {"measured_step_ns", found.measured_ns},
          {"error", found.error},
          {"advice", found.advice},
          {"changes", changes}};
}

nlohmann::json settings_json(const Report& report) {
  const auto& [options, communicator, result, lost, returned] = report;
  const auto& settings = options.trainer;
  return {{"workers", communicator.world()},
          {"model", settings.model},
          {"data", options.data},
          {"epochs", settings.epochs},
          {"steps", std::min(settings.steps, steps_of_epochs(settings, result.steps_per_epoch))},
          {"target_accuracy", or_null(settings.target_accuracy)},
          {"target_loss", or_null(settings.target_loss)},
          {"evaluate_every", settings.evaluate_every},
          {"batch", settings.batch},
          {"accumulate", settings.accumulate},
          {"lr", settings.learning_rate},
          {"lr_batch", settings.learning_rate_batch},
          {"warm_up", settings.warm_up},
          {"optimizer", settings.optimizer},
          {"momentum", settings.momentum},
          {"weight_decay", settings.weight_decay},
          {"sync", settings.sync},
          {"parallel", settings.parallel},
          {"place", settings.place},
          {"speeds", settings.unequal.speeds},
          {"sample_ms", settings.sample_ms},
          {"jitter_share", settings.unequal.jitter_share},
          {"jitter_factor", settings.unequal.jitter_factor},
          {"split_by_speed", settings.split_by_speed},
          {"seed", settings.seed},
          {"save", settings.save.string()},
          {"resume", settings.resume.string()},
          {"transport", communicator.transport_name()},
          {"algorithm", options.communicator.algorithm},
          {"compress", settings.compress},
          {"bucket_bytes", settings.bucket_bytes},
          {"sockets", options.communicator.tcp_sockets},
          {"link_rate", options.link_rate},
          {"link_bytes_per_second", options.communicator.link_bytes_per_second},
          {"threads", result.threads}};
}

// What auto chose by: measured, or ordinary ones.
nlohmann::json links_json(const Communicator& communicator) {
  const LinkModel& links = communicator.links();
  return {{"measured", communicator.are_links_measured()},
          {"latency_seconds", links.latency},
          {"seconds_per_byte", links.byte},
          {"seconds_per_byte_between_nodes", links.between > 0 ? nlohmann::json(links.between) : nlohmann::json()}};
}

}  // namespace

std::string to_table(const Report& report) {
  const auto& [options, communicator, result, lost, returned] = report;
  const auto& last = result.history.back();
  const auto world = communicator.world();
  Rows rows{
      {"model", fmt::format("{}, {} parameters", options.trainer.model, grouped(result.parameters))},
      {"workers", fmt::format("{} over {}{}, gradients {}", world, communicator.transport_name(),
                              options.link_rate.empty() ? "" : " at " + options.link_rate,
                              options.trainer.compress == "none" ? "as f32" : "as " + options.trainer.compress)},
      {"loss",
       fmt::format("{}{:.4f} in test", last.loss ? fmt::format("{:.4f} in training, ", unsigned_nan(*last.loss)) : "",
                   unsigned_nan(last.test.loss))},
      {"time", fmt::format("{:.1f} s for {} steps ({:.2f} epochs in all)", result.seconds, grouped(result.steps_here),
                           epochs(result))},
      {"samples/s", fmt::format("{}", grouped(static_cast<std::size_t>(std::round(samples_per_second(report)))))},
      {"sent per worker", fmt::format("{}{}", human_bytes(result.bytes_sent_per_worker), bits_per_parameter(report))},
      {"synchronization", synchronization(report)},
      {"exposed communication",
       fmt::format("{:.1f} % of the time of a step", result.exposed_communication_share * 100)},
      {"bottleneck", cli::bottleneck(cli::step_shares(result.exposed_communication_by_rank, result.groups))}};
  if (options.trainer.parallel != "none")
    rows.emplace_back("parallel",
                      fmt::format("{}, {} replicas; {} a worker sent between parts", options.trainer.parallel,
                                  result.shares.size(), human_bytes(result.bytes_model)));
  if (communicator.tolerated_loss() > 0)
    rows.emplace_back("lost",
                      fmt::format("{:.3f} % of the gradients' packets ({} of {} KiB)", result.losses.share() * 100,
                                  grouped(result.losses.missing), grouped(result.losses.due)));
  if (const auto step = diverged_at(result))
    rows.insert(rows.begin() + 3,
                {"diverged", fmt::format("by step {} the loss was no finite number: lower --lr, or let it rise over "
                                         "--warm-up steps",
                                         grouped(*step))});
  const auto judged = score_rows(last.test);
  rows.insert(rows.begin() + 2, judged.begin(), judged.end());
  std::string table;
  for (const auto& each : result.decisions)
    rows.emplace_back(fmt::format("chosen at step {}", each.step),
                      fmt::format("{}; {}", each.reason,
                                  each.in_use_from ? fmt::format("in use from step {}", *each.in_use_from)
                                                   : "not in use by the end"));
  const auto planned = plan_rows(report);
  rows.insert(rows.end(), planned.begin(), planned.end());
  for (const auto& [name, value] : rows) table += fmt::format("{:<22} {}\n", name, value);
  return table;
}

nlohmann::json to_json(const Report& report) {
  const auto& [options, communicator, result, lost, returned] = report;
  nlohmann::json history = nlohmann::json::array();
  for (const auto& entry : result.history)
    history.push_back({{"step", entry.step},
                       {"seconds", entry.seconds},
                       {"loss", or_null(entry.loss)},
                       {"test_loss", entry.test.loss},
                       {"accuracy", or_null(entry.test.accuracy)},
                       {"bits_per_character", or_null(entry.test.bits_per_character)},
                       {"frechet_distance", or_null(entry.test.frechet_distance)}});
  nlohmann::json decisions = nlohmann::json::array();
  for (const auto& each : result.decisions)
    decisions.push_back({{"step", each.step},
                         {"in_use_from", each.in_use_from ? nlohmann::json(*each.in_use_from) : nlohmann::json()},
                         {"sync", each.sync},
                         {"split_by_speed", each.split_by_speed},
                         {"reason", each.reason}});
  const auto& last = result.history.back();
  const auto diverged = diverged_at(result);
  return {{"diverged_at", diverged ? nlohmann::json(*diverged) : nlohmann::json()},
          {"accuracy", or_null(last.test.accuracy)},
          {"loss", or_null(last.loss)},
          {"test_loss", last.test.loss},
          {"bits_per_character", or_null(last.test.bits_per_character)},
          {"frechet_distance", or_null(last.test.frechet_distance)},
          {"epochs", epochs(result)},
          {"steps", result.steps},
          {"seconds", result.seconds},
          {"samples_per_second", samples_per_second(report)},
          {"bytes_sent_per_worker", result.bytes_sent_per_worker},
          {"rounds", {{"inside", result.rounds_inside}, {"between", result.rounds_between}}},
          {"bytes_per_worker",
           {{"inside", result.bytes_inside}, {"between", result.bytes_between}, {"model", result.bytes_model}}},
          {"shares", result.shares},
          {"groups", result.groups},
          {"decisions", std::move(decisions)},
          {"exposed_communication_share", result.exposed_communication_share},
          {"exposed_communication_by_rank", result.exposed_communication_by_rank},
          {"bits_per_parameter", bits_sent(report)},
          {"plain_buckets", result.plain_buckets},
          {"codec_state_bytes", result.codec_state_bytes},
          {"lost_share", result.losses.share()},
          {"lost_workers", report.lost},
          {"returned_workers", report.returned},
          {"parameters", result.parameters},
          {"parameter_hash", fmt::format("{:016x}", result.parameter_hash)},
          {"step_ns", result.median_step_seconds * 1e9},
          {"links", links_json(communicator)},
          {"plan", plan_json(report)},
          {"history", std::move(history)},
          {"settings", settings_json(report)},
          {"environment", cli::environment()}};
}

}  // namespace ranvier::train
