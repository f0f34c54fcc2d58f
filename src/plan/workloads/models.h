// The builders of ready-made workloads: hyper-parameters in, layers out.
#pragma once

#include <optional>
#include <string_view>

#include "ranvier/workload.h"

namespace ranvier::plan {

// Dense 16-bit multiply-adds per nanosecond of the NPU that the published studies assume: 30 x 2^40 a second.
inline constexpr double npu_multiply_adds_per_ns = 30 * 1099511627776.0 / 1e9;
inline constexpr double bytes_per_value = 2;  // 16-bit activations, weights and gradients

// Sizes that a user may change; 0 leaves the model's own.
struct WorkloadSizes {
  int batch = 0;     // sequences or samples of one replica in one step
  int sequence = 0;  // tokens in a sequence
  int layers = 0;    // transformer blocks
  int microbatches = 0;
};

struct TransformerModel {
  double hidden = 0;
  int blocks = 0;
  double heads = 0;
  double key_value_heads = 0;  // less than heads with grouped-query attention
  double feed_forward = 0;     // the inner width of the feed-forward layer
  bool gated = false;          // SwiGLU: a third matrix
  double vocabulary = 0;       // 0: blocks only
  int experts = 1;
  int experts_per_token = 1;
  bool gathers_activations = false;  // an all_gather of the attention's output gradient in the backward pass
  WorkloadSizes defaults;
};

// In how many parts a ready-made model can be cut, and how many sequences a replica has by default.
struct DivisibleModel {
  int most_tensor = 1;  // no more than there are heads to share keys and values among
  int heads = 1;        // that tensor degrees divide
  int blocks = 1;
  int batch = 1;
};
// Nothing for models that are replicated whole.
std::optional<DivisibleModel> divisible_model(std::string_view name);

Workload transformer(std::string_view name, const TransformerModel&, const Degrees&, const WorkloadSizes&);
Workload resnet50(const Degrees&, const WorkloadSizes&);
Workload dlrm(const Degrees&, const WorkloadSizes&);

}  // namespace ranvier::plan
