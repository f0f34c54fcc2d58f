// A c10d backend without Python: ranks that are threads meet through a store of torch's, add up their tensors, and see
// that a rank which does not come is named.
#include <ATen/ops/full.h>

#include <cstdio>
#include <exception>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "ranvier/torch/backend.h"

using namespace std::chrono_literals;

namespace {

constexpr int world = 3;

float sum_on(const c10::intrusive_ptr<c10d::Store>& store, int rank) {
  auto backend = ranvier::pytorch::make_backend(store, rank, world, {.timeout = 30s, .join_timeout = 30s});
  std::vector<at::Tensor> tensors{at::full({1000}, static_cast<float>(rank + 1))};
  backend->allreduce(tensors)->wait();
  const float sum = tensors.front().sum().item<float>();
  c10d::AllreduceOptions at_once;
  at_once.asyncOp = false;
  const auto work = backend->allreduce(tensors, at_once);
  const bool done = work->isCompleted();  // without a wait
  backend->shutdown();
  return done && tensors.front().sum().item<float>() == world * sum ? sum : -1;
}

}  // namespace

int main() {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<float> sums(world);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world; ++rank) ranks.emplace_back([&, rank] { sums[rank] = sum_on(store, rank); });
  for (std::thread& rank : ranks) rank.join();
  std::printf("sums %.0f %.0f %.0f\n", sums[0], sums[1], sums[2]);
  try {
    ranvier::pytorch::make_backend(c10::make_intrusive<c10d::HashStore>(), 0, 2, {.join_timeout = 100ms});
  } catch (const std::exception& error) {
    const std::string text = error.what();
    std::printf("%s\n", text.substr(0, text.find('\n')).c_str());
  }
}
