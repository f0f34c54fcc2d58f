#include "train/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "machine.h"
#include "ranvier/text.h"
#include "train/plan.h"

namespace ranvier::train {
namespace {

double samples_per_second(const Report& report) {
  const auto samples =
      report.result.steps_here * report.options.trainer.batch * static_cast<std::size_t>(report.communicator.world());
  return report.result.seconds > 0 ? static_cast<double>(samples) / report.result.seconds : 0;
}

double epochs(const trainer::TrainResult& result) {
  return static_cast<double>(result.steps) / static_cast<double>(result.steps_per_epoch);
}

// What a worker sent of each parameter and step, divided by the 2 (n - 1) / n times that an all_reduce sends it: 32 if
// gradients travel as they are, whatever the number of workers.
double bits_sent(const Report& report) {
  const double world = report.communicator.world();
  const double times = static_cast<double>(report.result.steps_here) * static_cast<double>(report.result.parameters) *
                       2 * (world - 1) / world;
  return times > 0 ? 8 * report.result.bytes_sent_per_worker / times : 0;
}

std::string bits_per_parameter(const Report& report) {
  const double bits = bits_sent(report);
  return bits > 0 ? fmt::format(", {:.3g} bits a parameter and step ({:.1f} x fewer than f32)", bits, 32 / bits) : "";
}

// "102,130"
std::string grouped(std::size_t number) {
  if (number < 1000) return fmt::format("{}", number);
  return fmt::format("{},{:03}", grouped(number / 1000), number % 1000);
}

using Rows = std::vector<std::pair<std::string, std::string>>;

Rows plan_rows(const Report& report) {
  if (!report.options.plan) return {};
  const PlanComparison found = compare(*report.options.plan, report.result);
  Rows rows{{"step, as planned", fmt::format("{:.2f} ms predicted, {:.2f} measured ({:+.0f} %)",
                                             found.predicted_ns / 1e6, found.measured_ns / 1e6, found.error * 100)}};
  if (report.result.dropped_tuning_at)
    rows.emplace_back("algorithms",
                      fmt::format("chosen anew, by measured links, from step {} on", *report.result.dropped_tuning_at));
  if (!found.advice.empty()) rows.emplace_back("the plan is wrong", found.advice);
  return rows;
}

nlohmann::json plan_json(const Report& report) {
  if (!report.options.plan) return nullptr;
  const PlanComparison found = compare(*report.options.plan, report.result);
  const auto& dropped = report.result.dropped_tuning_at;
  return {{"predicted_step_ns", found.predicted_ns},
          {"measured_step_ns", found.measured_ns},
          {"error", found.error},
          {"advice", found.advice},
          {"chosen_anew_at_step", dropped ? nlohmann::json(*dropped) : nlohmann::json()}};
}

}  // namespace

std::string to_table(const Report& report) {
  const auto& [options, communicator, result] = report;
  const auto& last = result.history.back();
  const auto world = communicator.world();
  Rows rows{
      {"model", fmt::format("{}, {} parameters", options.trainer.model, grouped(result.parameters))},
      {"workers", fmt::format("{} over {}{}, gradients {}", world, communicator.transport_name(),
                              options.link_rate.empty() ? "" : " at " + options.link_rate,
                              options.trainer.compress == "none" ? "as f32" : "as " + options.trainer.compress)},
      {"test accuracy", fmt::format("{:.2f} %", last.accuracy * 100)},
      {"loss", fmt::format("{:.4f} in training, {:.4f} in test", last.loss, last.test_loss)},
      {"time", fmt::format("{:.1f} s for {} steps ({:.2f} epochs in all)", result.seconds, grouped(result.steps_here),
                           epochs(result))},
      {"samples/s", fmt::format("{}", grouped(static_cast<std::size_t>(samples_per_second(report))))},
      {"sent per worker", fmt::format("{}{}", human_bytes(result.bytes_sent_per_worker), bits_per_parameter(report))},
      {"exposed communication",
       fmt::format("{:.1f} % of the time of a step", result.exposed_communication_share * 100)}};
  std::string table;
  const auto planned = plan_rows(report);
  rows.insert(rows.end(), planned.begin(), planned.end());
  for (const auto& [name, value] : rows) table += fmt::format("{:<22} {}\n", name, value);
  return table;
}

nlohmann::json to_json(const Report& report) {
  const auto& [options, communicator, result] = report;
  const auto& settings = options.trainer;
  nlohmann::json history = nlohmann::json::array();
  for (const auto& entry : result.history)
    history.push_back({{"step", entry.step},
                       {"seconds", entry.seconds},
                       {"loss", entry.loss},
                       {"test_loss", entry.test_loss},
                       {"accuracy", entry.accuracy}});
  const auto& last = result.history.back();
  const auto all_steps = settings.epochs * result.steps_per_epoch;
  return {{"accuracy", last.accuracy},
          {"loss", last.loss},
          {"test_loss", last.test_loss},
          {"epochs", epochs(result)},
          {"steps", result.steps},
          {"seconds", result.seconds},
          {"samples_per_second", samples_per_second(report)},
          {"bytes_sent_per_worker", result.bytes_sent_per_worker},
          {"exposed_communication_share", result.exposed_communication_share},
          {"bits_per_parameter", bits_sent(report)},
          {"plain_buckets", result.plain_buckets},
          {"codec_state_bytes", result.codec_state_bytes},
          {"parameters", result.parameters},
          {"parameter_hash", fmt::format("{:016x}", result.parameter_hash)},
          {"step_ns", result.median_step_seconds * 1e9},
          {"plan", plan_json(report)},
          {"history", std::move(history)},
          {"settings",
           {{"workers", communicator.world()},
            {"model", settings.model},
            {"data", options.data},
            {"epochs", settings.epochs},
            {"steps", std::min(settings.steps, all_steps)},
            {"target_accuracy", settings.target_accuracy ? nlohmann::json(*settings.target_accuracy) : nullptr},
            {"evaluate_every", settings.evaluate_every},
            {"batch", settings.batch},
            {"lr", settings.learning_rate},
            {"momentum", settings.momentum},
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
            {"threads", settings.threads}}},
          {"environment", cli::environment()}};
}

}  // namespace ranvier::train
