// Over "udp:loss=…": averages of gradients of which the caller learns what was lost, and what brings ranks together
// again that may differ. What c10d calls itself tolerates loss without either: RanvierBackend::all_reduce_each.
#include "integrations/torch/backend.h"
#include "integrations/torch/errors.h"
#include "integrations/torch/ranvier_backend.h"
#include "integrations/torch/tensors.h"

namespace ranvier::pytorch {
namespace {

RanvierBackend& ours(c10d::Backend& backend) {
  communicator_of(backend);  // or the reason why there is none
  return dynamic_cast<RanvierBackend&>(backend);
}

}  // namespace

intrusive_ptr<c10d::Work> RanvierBackend::average_gradients(const at::Tensor& gradients, const at::Tensor& lost,
                                                            bool may_differ) {
  constexpr auto title = "ranvier:average_gradients";
  const auto values = span_of<float>(gradients, -1, title);
  return launch({c10d::OpType::ALLREDUCE, title, {gradients}, {gradients, lost}, {}},
                {.collective = Collective::all_reduce,
                 .input = values,
                 .output = values,
                 .op = ReduceOp::average,
                 .timeout = timeout_for(c10d::kUnsetTimeout),
                 .label = label_of(gradients),
                 .tolerates_loss = true,
                 .may_differ = may_differ,
                 .lost = span_of<float>(lost, gradients.numel(), title)},
                true);
}

void RanvierBackend::realign(const at::Tensor& parameters) {
  const auto values = span_of<float>(parameters, -1, "ranvier:realign");
  const auto communicator = require_communicator();
  ++collectives_;
  translating_errors([&] { communicator->realign(values); });
}

BoundedLoss bounded_loss(const c10d::Backend& backend) {
  const auto* const ours = dynamic_cast<const RanvierBackend*>(&backend);
  if (ours == nullptr) return {};
  const auto communicator = ours->require_communicator();
  return {.share = communicator->tolerated_loss(), .resync = communicator->resync()};
}

c10::intrusive_ptr<c10d::Work> average_gradients(c10d::Backend& backend, const at::Tensor& gradients,
                                                 const at::Tensor& lost, bool may_differ) {
  return ours(backend).average_gradients(gradients, lost, may_differ);
}

void realign(c10d::Backend& backend, const at::Tensor& parameters) { ours(backend).realign(parameters); }

}  // namespace ranvier::pytorch
