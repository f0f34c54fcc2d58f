#include "integrations/trainer/evaluator.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>

namespace ranvier::trainer {

Evaluation Evaluator::look(std::size_t step, double seconds, Synchronizer& sync, at::Tensor& parameters) {
  const at::NoGradGuard no_grad;
  const auto own = sync.agreed() ? at::Tensor() : parameters.clone();
  sync.mean({parameters.data_ptr<float>(), static_cast<std::size_t>(parameters.numel())});
  Communicator& comm = team_.replicas();
  const auto total = static_cast<std::int64_t>(task_.test_samples());
  std::vector<double> sums(task_.sums() + 2, 0);
  sums[0] = loss_sum_;
  sums[1] = loss_count_;
  const auto of_test = std::span(sums).subspan(2);
  task_.add_test(total * comm.rank() / comm.world(), total * (comm.rank() + 1) / comm.world(), of_test);
  comm.all_reduce(sums);
  team_.share(sums);  // a pipeline's last stage alone has seen them
  if (own.defined()) parameters.copy_(own);
  loss_sum_ = 0;
  loss_count_ = 0;
  return {.step = step,
          .seconds = seconds,
          .loss = sums[1] > 0 ? std::optional(sums[0] / sums[1]) : std::nullopt,
          .test = task_.score(of_test)};
}

}  // namespace ranvier::trainer
