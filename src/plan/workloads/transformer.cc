// Transformers, divided as Megatron does. M. Shoeybi et al.: Megatron-LM: Training multi-billion parameter language
// models using model parallelism. arXiv:1909.08053 (tensor parallelism: one all_reduce of the activations behind each
// row-divided matrix, and of their gradients before each column-divided one). D. Narayanan et al.: Efficient
// large-scale language model training on GPU clusters using Megatron-LM. SC 2021 (pipelines: a step of m micro-batches
// over p stages takes (m + p - 1)/m of its time, what tensor groups and neighbours send included). D. Lepikhin et al.:
// GShard. ICLR 2021 (experts: an all_to_all on either side).
//
// Operations are counted as multiply-adds; attention is causal, so that it computes half of its square.
#include <array>
#include <cmath>

#include "plan/workloads/models.h"

namespace ranvier::plan {
namespace {

class Builder {
 public:
  Builder(const TransformerModel& model, const Degrees& degrees, const WorkloadSizes& sizes)
      : model_(model),
        tensor_(degrees.tensor),
        experts_(degrees.expert),
        sequence_(sizes.sequence > 0 ? sizes.sequence : model.defaults.sequence),
        tokens_((sizes.batch > 0 ? sizes.batch : model.defaults.batch) * sequence_) {}

  void block(std::vector<Layer>& layers, const std::string& number) {
    const double key_value = model_.hidden * model_.key_value_heads / model_.heads;
    const std::size_t first = layers.size();
    matrix(layers, "Q" + number, model_.hidden, model_.hidden);
    matrix(layers, "K" + number, model_.hidden, key_value);
    matrix(layers, "V" + number, model_.hidden, key_value);
    for (const char* name : {"QK", "softmax"})
      layers.push_back(compute(name + number, tokens_ * sequence_ * model_.hidden / 2));
    matrix(layers, "concat" + number, model_.hidden, model_.hidden);
    Layer& attention = layers.back();
    attention.forward.communications = {activations()};
    if (model_.gathers_activations)
      attention.input_gradient.communications = {{Collective::all_gather, activations().bytes / tensor_, Role::tensor}};
    layers[first].input_gradient.communications = {activations()};
    const double attention_weights = 2 * model_.hidden * (model_.hidden + key_value) / tensor_;

    // Of each token so many experts compute; of a NPU's weights so many experts' are there.
    const double copies = model_.experts > 1 ? model_.experts_per_token : 1;
    const std::size_t inner = layers.size();
    matrix(layers, "X1W1b" + number, model_.hidden, model_.feed_forward * (model_.gated ? 2 : 1) * copies);
    matrix(layers, "X1W2b" + number, model_.feed_forward * copies, model_.hidden);
    layers[inner].input_gradient.communications = {activations()};
    layers[inner + 1].forward.communications = {activations()};
    if (model_.experts > 1) {
      const Communication tokens{Collective::all_to_all, activations().bytes * copies / tensor_, Role::expert};
      for (Phase* phase : {&layers[inner].forward, &layers[inner + 1].forward, &layers[inner].input_gradient,
                           &layers[inner + 1].input_gradient})
        phase->communications.push_back(tokens);
    }
    const double expert_weights =
        model_.hidden * model_.feed_forward * (model_.gated ? 3 : 2) * model_.experts / experts_ / tensor_;
    layers.push_back({.name = "layerNorm" + number});
    for (Phase* phase : phases(layers.back())) phase->compute_ns = nanoseconds(tokens_ * model_.hidden);

    if (model_.experts > 1) {
      gradients(layers[first], attention_weights, Role::data);
      gradients(layers[inner], expert_weights, Role::expert_data);
    } else {
      gradients(layers[first], attention_weights + expert_weights, Role::data);
    }
  }

  // The vocabulary is divided: each NPU looks up the tokens of its part, and each has a part of the gradient of what
  // the head gets.
  void embedding(std::vector<Layer>& layers) {
    layers.push_back({.name = "embedding", .forward = {.communications = {activations()}}});
    gradients(layers.back(), model_.hidden * model_.vocabulary / tensor_, Role::data);
  }
  void head(std::vector<Layer>& layers) {
    layers.push_back(compute("head", tokens_ * model_.hidden * model_.vocabulary));
    layers.back().input_gradient.communications = {activations()};
    gradients(layers.back(), model_.hidden * model_.vocabulary / tensor_, Role::data);
  }

  Communication activations() const {
    return {Collective::all_reduce, tokens_ * model_.hidden * bytes_per_value, Role::tensor};
  }

 private:
  static std::array<Phase*, 3> phases(Layer& layer) {
    return {&layer.forward, &layer.input_gradient, &layer.weight_gradient};
  }
  // Whole ones, as trace files have them.
  static double nanoseconds(double multiply_adds) { return std::round(multiply_adds / npu_multiply_adds_per_ns); }

  Layer compute(const std::string& name, double multiply_adds) const {
    Layer layer{.name = name};
    for (Phase* phase : phases(layer)) phase->compute_ns = nanoseconds(multiply_adds / tensor_);
    return layer;
  }
  void matrix(std::vector<Layer>& layers, const std::string& name, double rows, double columns) const {
    layers.push_back(compute(name, tokens_ * rows * columns));
  }
  static void gradients(Layer& layer, double weights, Role role) {
    layer.weight_gradient.communications.push_back({Collective::all_reduce, weights * bytes_per_value, role});
  }

  const TransformerModel& model_;
  double tensor_;
  double experts_;
  double sequence_;
  double tokens_;
};

}  // namespace

Workload transformer(std::string_view name, const TransformerModel& model, const Degrees& degrees,
                     const WorkloadSizes& sizes) {
  Workload workload{.name = std::string(name), .degrees = degrees, .layers = {}};
  Builder builder(model, degrees, sizes);
  const int blocks = sizes.layers > 0 ? sizes.layers : model.blocks;
  // A stage has its share of the blocks; the longest stage, which all wait for, also the larger rest, and the head. The
  // embedding is in another one.
  const int in_stage = (blocks + degrees.pipeline - 1) / degrees.pipeline;
  if (model.vocabulary > 0 && degrees.pipeline == 1) builder.embedding(workload.layers);
  for (int block = 1; block <= in_stage; ++block) builder.block(workload.layers, std::to_string(block));
  if (model.vocabulary > 0) builder.head(workload.layers);

  if (degrees.pipeline > 1) {
    const int batch = sizes.batch > 0 ? sizes.batch : model.defaults.batch;
    const int microbatches = sizes.microbatches > 0 ? sizes.microbatches : batch;
    workload.fills = static_cast<double>(degrees.pipeline - 1) / microbatches;
    const Communication boundary{Collective::send, builder.activations().bytes / degrees.tensor, Role::pipeline};
    workload.layers.back().forward.communications.push_back(boundary);
    workload.layers.front().input_gradient.communications.push_back(boundary);
  }
  return workload;
}

}  // namespace ranvier::plan
