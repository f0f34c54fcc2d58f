// Data-parallel training on libtorch: what a program needs besides its model.
//   for r in 0 1; do ./train /tmp/job $r 2 & done; wait
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/types.h>

#include <cstdio>
#include <string>

#include "ranvier/exchange.h"
#include "ranvier/torch/gradient_buckets.h"

namespace nn = torch::nn;

int main(int argc, char** argv) {
  if (argc != 4) return std::fputs("usage: train FOLDER RANK WORLD\n", stderr), 2;
  const int rank = std::stoi(argv[2]), world = std::stoi(argv[3]);
  auto store = ranvier::file_store(argv[1]);
  auto comm = ranvier::Communicator::connect(*store, rank, world);
  auto exchange = ranvier::make_exchange("none", *comm);  // "bf16" halves the bytes

  torch::manual_seed(rank);  // each rank starts elsewhere, …
  nn::Sequential model(nn::Linear(16, 32), nn::Tanh(), nn::Linear(32, 1));
  ranvier::trainer::GradientBuckets buckets(model->parameters(), *comm, *exchange, 1 << 20);
  torch::Tensor& parameters = buckets.parameters();
  comm->broadcast({parameters.data_ptr(), static_cast<std::size_t>(parameters.numel()), ranvier::DType::f32}, 0);
  torch::optim::Adam optimizer(model->parameters(), 1e-2);  // … and goes on from rank 0's parameters

  torch::manual_seed(100);
  const auto inputs = torch::randn({64, 16});
  const auto targets = inputs.sum(1, true).sin();
  const auto mine = torch::arange(rank, 64, world);
  float loss = 0;
  for (int step = 0; step < 20; ++step) {
    buckets.clear();
    auto error = nn::functional::mse_loss(model->forward(inputs.index_select(0, mine)), targets.index_select(0, mine));
    error.backward();  // buckets leave as soon as they are full
    buckets.finish();
    optimizer.step();
    loss = error.item<float>() / static_cast<float>(world);
    comm->all_reduce(std::span(&loss, 1));
  }
  std::printf("rank %d of %d: loss %.5f, parameters sum to %.6f\n", rank, world, loss, parameters.sum().item<double>());
}
