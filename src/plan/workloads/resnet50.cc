// K. He, X. Zhang, S. Ren, J. Sun: Deep residual learning for image recognition. CVPR 2016, table 1: a 7x7 convolution,
// then 3, 4, 6 and 3 bottlenecks of 1x1, 3x3 and 1x1 convolutions, then one matrix to 1000 classes. Batch normalization
// and biases, 0.2 % of the parameters, are left out, as in the published studies: 25,502,912 weights.
#include <cmath>

#include "plan/workloads/models.h"

namespace ranvier::plan {
namespace {

constexpr int default_images = 32;

void convolution(Workload& workload, const std::string& name, double batch, double side, double kernel, double in,
                 double out) {
  const double weights = kernel * kernel * in * out;
  const double time = std::round(batch * side * side * weights / npu_multiply_adds_per_ns);
  Layer layer{.name = name};
  layer.forward.compute_ns = layer.input_gradient.compute_ns = layer.weight_gradient.compute_ns = time;
  layer.weight_gradient.communications = {{Collective::all_reduce, weights * bytes_per_value, Role::data}};
  workload.layers.push_back(std::move(layer));
}

}  // namespace

Workload resnet50(const Degrees& degrees, const WorkloadSizes& sizes) {
  Workload workload{.name = "resnet50", .degrees = degrees, .layers = {}};
  const double batch = sizes.batch > 0 ? sizes.batch : default_images;
  convolution(workload, "conv1", batch, 112, 7, 3, 64);
  double in = 64;
  double side = 56;
  double width = 64;
  for (const int blocks : {3, 4, 6, 3}) {
    for (int block = 1; block <= blocks; ++block) {
      const std::string name = "layer_" + std::to_string(static_cast<int>(width)) + "_" + std::to_string(block);
      if (block == 1) convolution(workload, name + "_shortcut", batch, side, 1, in, 4 * width);
      // The 3x3 convolution of a stage's first block halves the sides, in what is known as ResNet-50 v1.5; the original
      // does so one convolution earlier. Weights are the same.
      const double entry = block == 1 && width > 64 ? 2 * side : side;
      convolution(workload, name + "_conv1", batch, entry, 1, in, width);
      convolution(workload, name + "_conv2", batch, side, 3, width, width);
      convolution(workload, name + "_conv3", batch, side, 1, width, 4 * width);
      in = 4 * width;
    }
    width *= 2;
    side /= 2;
  }
  convolution(workload, "fc", batch, 1, 1, in, 1000);
  return workload;
}

}  // namespace ranvier::plan
