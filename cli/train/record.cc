#include "train/record.h"

#include <fmt/format.h>

#include "output.h"
#include "ranvier/workload_file.h"

namespace ranvier::train {
namespace {

namespace fs = std::filesystem;

// A layer for each tensor, and the rest of the forward pass: gradients become ready from the last layer to the first.
Workload workload_of(const Report& report) {
  const trainer::RecordedStep& step = *report.result.recorded;
  Workload workload{.name = report.options.trainer.model, .degrees = {}, .layers = {}};
  workload.idle_ns = step.other_ns;
  workload.recorded_npus = report.communicator.world();
  for (auto tensor = step.tensors.rbegin(); tensor != step.tensors.rend(); ++tensor)
    workload.layers.push_back(
        {.name = tensor->name,
         .forward = {.compute_ns = tensor->forward_ns},
         .weight_gradient = {.compute_ns = tensor->compute_ns,
                             .communications = {{Collective::all_reduce, tensor->bytes, Role::data}}}});
  workload.layers.push_back({.name = "rest of forward", .forward = {.compute_ns = step.forward_ns}});
  return workload;
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
  const std::string origin =
      fmt::format("Written by ranvier train --record: the median of {} steps of {} samples on each of {} workers.",
                  report.result.recorded->steps, report.options.trainer.batch, report.communicator.world());
  const fs::path folder = report.options.record_folder;
  std::error_code problem;
  fs::create_directories(folder, problem);  // the file says what is wrong
  const cli::ResultFile file(workload_file(folder), "--record");
  file.write(to_toml(workload_of(report), origin));
}

}  // namespace ranvier::train
