// Several tensors of one rank in one call, each as if it were a rank's own: the calls that once served several GPUs of
// a process, and that gloo still takes. They are of one type and one shape.
#include "integrations/torch/ranvier_backend.h"
#include "integrations/torch/tensors.h"
#include "ranvier/kernel.h"

namespace ranvier::pytorch {

// All of them end as the total over all tensors of all ranks; an average divides it by the number of ranks.
intrusive_ptr<c10d::Work> RanvierBackend::all_reduce_several(const Tensors& tensors, const char* title,
                                                             const c10d::AllreduceOptions& options) {
  require_alike(tensors, title);
  const ReduceOp op = translate(options.reduceOp);
  const at::Tensor total = joined({tensors.front()});
  const TypedSpan span = reducible(total, op);
  for (std::size_t i = 1; i < tensors.size(); ++i)
    kernel::reduce(op, span.dtype, span.data, span.data, elements(packed(tensors[i])).data, span.count, 1);
  Call call{c10d::OpType::ALLREDUCE, title, tensors, {total}, {}};
  for (const at::Tensor& tensor : tensors) add_write_backs(call.write_backs, {tensor}, total, title);
  return launch(std::move(call),
                {.collective = Collective::all_reduce,
                 .input = span,
                 .output = span,
                 .op = op,
                 .timeout = timeout_for(options.timeout),
                 .label = label_of(tensors.front()),
                 .tolerates_loss = options.asyncOp},
                options.asyncOp);
}

// Every list of outputs ends as all tensors of all ranks: those of rank 0 first, in the order in which it gave them.
intrusive_ptr<c10d::Work> RanvierBackend::all_gather_several(const std::vector<Tensors>& outputs, const Tensors& inputs,
                                                             const char* title, const c10d::AllgatherOptions& options) {
  require_alike(inputs, title);
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), title, ": there are ", outputs.size(), " lists of outputs for ",
                    inputs.size(), " inputs");
  const at::Tensor from = joined(inputs);
  const at::Tensor to = joined_room(outputs.front(), from);
  Call call{c10d::OpType::ALLGATHER, title, {}, {from}, {}};
  for (const Tensors& list : outputs) {
    require_one_each(list, size_ * static_cast<Rank>(inputs.size()), title);
    for (const at::Tensor& output : list) {
      same_type(output, from, title);
      same_size(output, inputs.front(), title);
    }
    add_write_backs(call.write_backs, list, to, title);
    call.results.insert(call.results.end(), list.begin(), list.end());
  }
  return launch(std::move(call),
                {.collective = Collective::all_gather,
                 .input = elements(from),
                 .output = elements(to),
                 .timeout = timeout_for(options.timeout),
                 .label = label_of(inputs.front())},
                options.asyncOp);
}

}  // namespace ranvier::pytorch
