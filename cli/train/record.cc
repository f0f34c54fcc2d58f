#include "train/record.h"

#include <fmt/format.h>

#include <vector>

#include "integrations/trainer/division.h"
#include "output.h"
#include "ranvier/workload_file.h"

namespace ranvier::train {
namespace {

namespace fs = std::filesystem;

std::vector<Communication> communications(const std::vector<trainer::PartsCall>& calls, trainer::Division::Way way) {
  const Role role = way == trainer::Division::Way::pipeline ? Role::pipeline : Role::tensor;
  std::vector<Communication> result;
  for (const auto& [collective, bytes] : calls) result.push_back({collective, bytes, role});
  return result;
}

// A layer for each tensor, and the rest of the forward pass: gradients become ready from the last layer to the first.
Workload workload_of(const Report& report) {
  const trainer::RecordedStep& step = *report.result.recorded;
  const auto division = trainer::parse_division(report.options.trainer.parallel);
  Workload workload{.name = report.options.trainer.model, .degrees = {}, .layers = {}};
  workload.idle_ns = step.other_ns;
  workload.recorded_npus = report.communicator.world();
  if (division.way == trainer::Division::Way::tensor) workload.degrees.tensor = division.parts;
  if (division.way == trainer::Division::Way::pipeline) {
    workload.degrees.pipeline = division.parts;
    // One pass fills and drains all other stages, each for as long as it takes there.
    workload.fills = step.others / static_cast<double>(step.passes);
  }
  for (auto tensor = step.tensors.rbegin(); tensor != step.tensors.rend(); ++tensor)
    workload.layers.push_back(
        {.name = tensor->name,
         .forward = {.compute_ns = tensor->forward_ns,
                     .communications = communications(tensor->in_forward, division.way)},
         .input_gradient = {.communications = communications(tensor->in_backward, division.way)},
         .weight_gradient = {.compute_ns = tensor->compute_ns,
                             .communications = {{Collective::all_reduce, tensor->bytes, Role::data}}}});
  workload.layers.push_back(
      {.name = "rest of forward",
       .forward = {.compute_ns = step.forward_ns, .communications = communications(step.in_forward, division.way)}});
  return workload;
}

// What the times are of.
std::string origin_of(const Report& report) {
  const trainer::RecordedStep& step = *report.result.recorded;
  const trainer::TrainSettings& run = report.options.trainer;
  const auto division = trainer::parse_division(run.parallel);
  std::string text =
      fmt::format("Written by ranvier train --record: the median of {} steps of {} samples on each of {} ", step.steps,
                  run.batch * step.passes, report.communicator.world() / division.parts);
  if (division.way == trainer::Division::Way::whole) return text + "workers.";
  text += fmt::format("replicas (--parallel {})", run.parallel);
  if (division.way == trainer::Division::Way::pipeline)
    text += fmt::format(", in {} passes; stage {}, which computes longest", step.passes, step.stage);
  return text + ".";
}

}  // namespace

fs::path workload_file(const fs::path& folder) { return folder / "workload.toml"; }

void check_record_folder(const fs::path& folder) {
  std::error_code problem;
  fs::path first = workload_file(folder);  // of what is to be made
  while (first.has_parent_path() && !fs::exists(first.parent_path(), problem)) first = first.parent_path();
  const cli::ResultFile makable(first, "--record");
}

void write_workload(const Report& report) {
  const fs::path folder = report.options.record_folder;
  std::error_code problem;
  fs::create_directories(folder, problem);  // the file says what is wrong
  const cli::ResultFile file(workload_file(folder), "--record");
  file.write(to_toml(workload_of(report), origin_of(report)));
}

}  // namespace ranvier::train
