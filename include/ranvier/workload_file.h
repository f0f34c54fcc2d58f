// A workload as a file that people can read and edit: what `ranvier train --record` and `ranvier.record()` write, and
// what `simulate` and `plan` take as --workload. Layers stand in the order of the forward pass; their gradients become
// ready from the last to the first.
//
//   name = "cnn"
//   other_ns = 310000          # of a step, beside its passes: loading data, the optimizer
//   fills = 0.75               # of a pipeline that fills and drains: (stages - 1) / micro-batches, of stages that take
//                              # as long; else what the others take, as a multiple of this one, instead of their number
//   ranks = 4                  # on which it was recorded
//   [[layer]]
//   name = "conv1"
//   forward_ns = 1200
//   weight_gradient_ns = 2100
//   communications = [{ pass = "weight_gradient", collective = "all_reduce", bytes = 3200, role = "data" }]
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "ranvier/workload.h"

namespace ranvier {

std::string_view name_of(Role);

// `origin`: a sentence for the file's first lines, on where its numbers come from.
std::string to_toml(const Workload&, std::string_view origin);
// Throws Error{config} that names line and column, for unknown keys with the nearest known one.
Workload read_workload(const std::filesystem::path&);

// The same on so many NPUs: of more replicas each has a smaller part of what data groups gather (FSDP), the whole of
// which is as large. All else that a replica sends does not depend on how many there are.
Workload rescaled(Workload, std::int64_t npus);

}  // namespace ranvier
