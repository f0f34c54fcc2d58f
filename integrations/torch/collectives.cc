// One tensor a rank, or several where gloo takes several.
#include "integrations/torch/ranvier_backend.h"
#include "integrations/torch/tensors.h"

namespace ranvier::pytorch {

intrusive_ptr<c10d::Work> RanvierBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  constexpr auto title = "ranvier:all_reduce";
  if (tensors.size() == 1 && tensors.front().is_sparse()) return all_reduce_sparse(tensors.front(), options);
  if (tensors.size() > 1) return all_reduce_several(tensors, title, options);
  const at::Tensor& tensor = single(tensors, title);
  return all_reduce_each(c10d::OpType::ALLREDUCE, title, {tensor}, options);
}

intrusive_ptr<c10d::Work> RanvierBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return allreduce(tensors, options);
}

intrusive_ptr<c10d::Work> RanvierBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  constexpr auto title = "ranvier:broadcast";
  require_alike(tensors, title);
  TORCH_CHECK_VALUE(options.rootTensor >= 0 && options.rootTensor < std::ssize(tensors), title,
                    ": the root's tensor is number ", options.rootTensor, " of ", tensors.size());
  const at::Tensor& tensor = tensors[static_cast<std::size_t>(options.rootTensor)];
  const Rank root = static_cast<Rank>(options.rootRank);
  const at::Tensor memory = root == rank_ ? packed(tensor) : packed_room(tensor);
  Call call{c10d::OpType::BROADCAST, title, tensors, {memory}, {}};
  for (const at::Tensor& each : tensors)
    if (root != rank_ || !each.is_same(tensor)) add_write_back(call.write_backs, each, memory, title);
  const TypedSpan span = elements(memory);
  return launch(std::move(call),
                {.collective = Collective::broadcast,
                 .input = span,
                 .output = span,
                 .root = root,
                 .timeout = timeout_for(options.timeout),
                 .label = label_of(tensor)},
                options.asyncOp);
}

intrusive_ptr<c10d::Work> RanvierBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  constexpr auto title = "ranvier:reduce";
  const at::Tensor& tensor = single(tensors, title);
  const Rank root = static_cast<Rank>(options.rootRank);
  const ReduceOp op = translate(options.reduceOp);
  const at::Tensor memory = packed(tensor);
  Call call{c10d::OpType::REDUCE, title, {tensor}, {memory}, {}};
  const TypedSpan span = reducible(memory, op);
  if (root == rank_) add_write_back(call.write_backs, tensor, memory, title);
  return launch(std::move(call),
                {.collective = Collective::reduce,
                 .input = span,
                 .output = root == rank_ ? span : TypedSpan(nullptr, 0, span.dtype),
                 .op = op,
                 .root = root,
                 .timeout = timeout_for(options.timeout),
                 .label = label_of(tensor)},
                options.asyncOp);
}

intrusive_ptr<c10d::Work> RanvierBackend::barrier(const c10d::BarrierOptions& options) {
  return launch({c10d::OpType::BARRIER, "ranvier:barrier", {}, {}, {}},
                {.collective = Collective::barrier, .timeout = timeout_for(options.timeout)}, options.asyncOp);
}

}  // namespace ranvier::pytorch
