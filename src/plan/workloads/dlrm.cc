// M. Naumov et al.: Deep learning recommendation model for personalization and recommendation systems.
// arXiv:1906.00091, in the size that ASTRA-sim and LIBRA bundle: 64 embedding tables with rows of 64 values, divided
// over all NPUs; a bottom network of 1600-1024x6-64 and a top one of 4160-2048x11-1, replicated. Each NPU sends the
// rows that others' samples need, and their gradients back: all_to_all.
#include <cmath>
#include <vector>

#include "plan/workloads/models.h"

namespace ranvier::plan {
namespace {

constexpr int default_batch = 512;
constexpr double tables = 64;
constexpr double row = 64;
constexpr double memory_bytes_per_ns = 10;  // looking rows up is bound by memory, at random places

}  // namespace

Workload dlrm(const Degrees& degrees, const WorkloadSizes& sizes) {
  Workload workload{.name = "dlrm", .degrees = degrees, .layers = {}};
  const double batch = sizes.batch > 0 ? sizes.batch : default_batch;
  const double rows_bytes = batch * tables * row * bytes_per_value;
  Layer embedding{.name = "Embedding"};
  embedding.forward = {.compute_ns = std::round(rows_bytes / memory_bytes_per_ns),
                       .communications = {{Collective::all_to_all, rows_bytes, Role::data}}};
  embedding.input_gradient.communications = {{Collective::all_to_all, rows_bytes, Role::data}};
  workload.layers.push_back(std::move(embedding));

  const auto network = [&](const std::string& name, const std::vector<double>& widths) {
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
      const double weights = widths[i] * widths[i + 1];
      const double time = std::round(batch * weights / npu_multiply_adds_per_ns);
      Layer layer{.name = name + std::to_string(i)};
      layer.forward.compute_ns = layer.input_gradient.compute_ns = layer.weight_gradient.compute_ns = time;
      layer.weight_gradient.communications = {{Collective::all_reduce, weights * bytes_per_value, Role::data}};
      workload.layers.push_back(std::move(layer));
    }
  };
  network("MLP_Bottom_", {1600, 1024, 1024, 1024, 1024, 1024, 1024, row});
  std::vector<double> top{row * (tables + 1)};
  top.insert(top.end(), 11, 2048);
  top.push_back(1);
  network("MLP_Top_", top);
  return workload;
}

}  // namespace ranvier::plan
