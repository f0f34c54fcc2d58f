// In which ways a model may be divided over the ranks.
#include <fmt/format.h>

#include <cmath>

#include "base/spec.h"
#include "plan/workloads/models.h"
#include "ranvier/error.h"
#include "ranvier/plan.h"
#include "ranvier/text.h"

namespace ranvier {
namespace {

constexpr double state_bytes_per_parameter = 16;

// Of one rank: what it averages is what it has.
double state_bytes(const Workload& workload, double value_bytes = plan::bytes_per_value) {
  double gradients = 0;
  for (const Layer& layer : workload.layers)
    for (const Communication& each : layer.weight_gradient.communications) gradients += each.bytes;
  return gradients / value_bytes * state_bytes_per_parameter;
}

std::optional<int> setting(const StageSpec& spec, std::string_view key) {
  for (const auto& [name, value] : spec.settings)
    if (name == key) return parse_number<int>(value);
  return std::nullopt;
}

// A degree that is named, or the powers of two up to `most`.
std::vector<std::int64_t> degrees_of(std::optional<int> named, int most) {
  if (named) return {*named};
  std::vector<std::int64_t> degrees;
  for (std::int64_t degree = 1; degree <= most; degree *= 2) degrees.push_back(degree);
  return degrees;
}

}  // namespace

void check_memory(std::string_view name, const Workload& workload, double value_bytes, double memory_bytes) {
  const double state = state_bytes(workload, value_bytes);
  if (state > memory_bytes)
    throw Error(ErrorKind::usage,
                fmt::format("{} does not fit: it has {:.4g} GB of weights, gradients and optimizer on each rank, and "
                            "--memory says {:.4g}; divide it over more ranks, or name more memory",
                            name, state / 1e9, memory_bytes / 1e9));
}

std::vector<std::string> divisions(std::string_view text, Rank world, double memory_bytes) {
  const Workload as_named = make_workload(text);
  const StageSpec spec = parse_spec(text).front();
  const auto model = plan::divisible_model(spec.name);
  if (!model || (setting(spec, "tp") && setting(spec, "pp"))) {
    check_world(as_named, world);
    check_memory(text, as_named, plan::bytes_per_value, memory_bytes);
    return {std::string(text)};
  }
  const Degrees& degrees = as_named.degrees;
  const int batch = setting(spec, "batch").value_or(model->batch);
  // What the degrees of the model itself make of the world decides how many samples a step has, whatever divides them.
  const std::int64_t divided = std::int64_t{degrees.tensor} * degrees.pipeline;
  const std::int64_t replicas = degrees.data > 0 ? degrees.data : std::max<std::int64_t>(1, world / divided);
  const std::int64_t samples = batch * replicas;

  const int microbatches = setting(spec, "microbatches").value_or(1);
  std::string others;
  for (const auto& [name, value] : spec.settings)
    if (name != "tp" && name != "pp" && name != "dp" && name != "batch") others += fmt::format(",{}={}", name, value);
  std::vector<std::string> found;
  double least_state = INFINITY;
  const int blocks = setting(spec, "layers").value_or(model->blocks);
  auto tensors = degrees_of(setting(spec, "tp"), model->most_tensor);
  if (!setting(spec, "tp")) std::erase_if(tensors, [&](std::int64_t tensor) { return model->heads % tensor != 0; });
  for (const std::int64_t tensor : tensors)
    for (const std::int64_t pipeline : degrees_of(setting(spec, "pp"), blocks)) {
      const std::int64_t data = world / (tensor * pipeline);
      if (tensor * pipeline * data != world || data % degrees.expert != 0 || samples % data != 0) continue;
      if (degrees.data > 0 && data != degrees.data) continue;
      if (samples / data % microbatches != 0) continue;
      std::string one =
          fmt::format("{}:tp={},pp={},dp={},batch={}{}", spec.name, tensor, pipeline, data, samples / data, others);
      const double state = state_bytes(make_workload(one));
      least_state = std::min(least_state, state);
      if (state <= memory_bytes) found.push_back(std::move(one));
    }
  if (!found.empty()) return found;
  if (std::isfinite(least_state))
    throw Error(
        ErrorKind::usage,
        fmt::format("{} does not fit: of all its divisions over {} ranks the smallest has {:.1f} GB of weights, "
                    "gradients and optimizer on each, and --memory says {:.1f}; take more ranks or memory",
                    text, world, least_state / 1e9, memory_bytes / 1e9));
  throw Error(ErrorKind::usage, fmt::format("{} is divided into tp={}, pp={}, ep={}, dp={}, which does not make {} "
                                            "ranks with a whole number of samples each; write other degrees or batch= "
                                            "behind its name, or name another --world",
                                            text, degrees.tensor, degrees.pipeline, degrees.expert,
                                            degrees.data == 0 ? "any" : std::to_string(degrees.data), world));
}

}  // namespace ranvier
