// A tensor and one of world times its size; and many operations in one call, which are under way together.
#include "integrations/torch/ranvier_backend.h"
#include "integrations/torch/tensors.h"

namespace ranvier::pytorch {

intrusive_ptr<c10d::Work> RanvierBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                          const c10d::AllgatherOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return all_gather_each(c10d::OpType::_ALLGATHER_BASE, "ranvier:all_gather_into_tensor", outputs, inputs, options);
}

intrusive_ptr<c10d::Work> RanvierBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                          const c10d::AllgatherOptions& options) {
  return all_gather_each(c10d::OpType::COALESCED, "ranvier:all_gather_into_tensor_coalesced", outputs, inputs, options);
}

intrusive_ptr<c10d::Work> RanvierBackend::all_gather_each(c10d::OpType type, const char* title, const Tensors& outputs,
                                                          const Tensors& inputs,
                                                          const c10d::AllgatherOptions& options) {
  require_pairs(outputs, inputs, title);
  Call call{type, title, outputs, {}, {}};
  std::vector<Request> requests;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    require_multiple(outputs[i], inputs[i], size_, title);
    const at::Tensor from = call.inputs.emplace_back(packed(inputs[i]));
    const at::Tensor to = packed_room(outputs[i]);
    add_write_back(call.write_backs, outputs[i], to, title);
    requests.push_back({.collective = Collective::all_gather,
                        .input = elements(from),
                        .output = elements(to),
                        .timeout = timeout_for(options.timeout),
                        .label = label_of(from)});
  }
  return launch(std::move(call), requests, options.asyncOp);
}

intrusive_ptr<c10d::Work> RanvierBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                               const c10d::ReduceScatterOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return reduce_scatter_each(c10d::OpType::_REDUCE_SCATTER_BASE, "ranvier:reduce_scatter_tensor", outputs, inputs,
                             options);
}

intrusive_ptr<c10d::Work> RanvierBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                          const c10d::ReduceScatterOptions& options) {
  // torch has another type for it since 2.12 only, which nothing asks for.
  return reduce_scatter_each(c10d::OpType::COALESCED, "ranvier:reduce_scatter_tensor_coalesced", outputs, inputs,
                             options);
}

intrusive_ptr<c10d::Work> RanvierBackend::reduce_scatter_each(c10d::OpType type, const char* title,
                                                              const Tensors& outputs, const Tensors& inputs,
                                                              const c10d::ReduceScatterOptions& options) {
  require_pairs(outputs, inputs, title);
  const ReduceOp op = translate(options.reduceOp);
  Call call{type, title, outputs, {}, {}};
  std::vector<Request> requests;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    require_multiple(inputs[i], outputs[i], size_, title);
    const at::Tensor from = call.inputs.emplace_back(packed(inputs[i]));
    const at::Tensor to = packed_room(outputs[i]);
    add_write_back(call.write_backs, outputs[i], to, title);
    requests.push_back({.collective = Collective::reduce_scatter,
                        .input = reducible(from, op),
                        .output = reducible(to, op),
                        .op = op,
                        .timeout = timeout_for(options.timeout),
                        .label = label_of(from)});
  }
  return launch(std::move(call), requests, options.asyncOp);
}

intrusive_ptr<c10d::Work> RanvierBackend::allreduce_coalesced(Tensors& tensors,
                                                              const c10d::AllreduceCoalescedOptions& options) {
  constexpr auto title = "ranvier:all_reduce_coalesced";
  for (const at::Tensor& tensor : tensors) require_dense(tensor, title);
  return all_reduce_each(c10d::OpType::ALLREDUCE_COALESCED, title, tensors, options);
}

intrusive_ptr<c10d::Work> RanvierBackend::all_reduce_each(c10d::OpType type, const char* title, const Tensors& tensors,
                                                          const c10d::AllreduceOptions& options) {
  const ReduceOp op = translate(options.reduceOp);
  Call call{type, title, tensors, {}, {}};
  std::vector<Request> requests;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor& memory = call.inputs.emplace_back(packed(tensor));
    add_write_back(call.write_backs, tensor, memory, title);
    const TypedSpan span = reducible(memory, op);
    requests.push_back({.collective = Collective::all_reduce,
                        .input = span,
                        .output = span,
                        .op = op,
                        .timeout = timeout_for(options.timeout),
                        .label = label_of(memory),
                        // Gradients are reduced while others are computed; what a program waits for at once are
                        // parameters, metrics and votes.
                        .tolerates_loss = options.asyncOp});
  }
  return launch(std::move(call), requests, options.asyncOp);
}

intrusive_ptr<c10d::Work> RanvierBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                        std::vector<std::int64_t>& output_rows,
                                                        std::vector<std::int64_t>& input_rows,
                                                        const c10d::AllToAllOptions& options) {
  constexpr auto title = "ranvier:all_to_all";
  require_dense(output, title);
  require_dense(input, title);
  same_type(output, input, title);
  Splits input_splits = splits_of(input, input_rows, size_, title);
  Splits output_splits = splits_of(output, output_rows, size_, title);
  // Torch lets a rank without split sizes meet one that has them: then both say theirs, for auto to take what serves
  // uneven parts.
  if (require_communicator()->options().algorithm == "auto") {
    if (input_splits.empty()) input_splits = even_splits(input, size_);
    if (output_splits.empty()) output_splits = even_splits(output, size_);
  }
  const bool by_rows = !input_rows.empty() || !output_rows.empty();
  const CallLabel label = label_of_exchange(input, output, by_rows, size_);
  const at::Tensor from = packed(input);
  const at::Tensor to = packed_room(output);
  Call call{c10d::OpType::ALLTOALL_BASE, title, {output}, {from}, {}};
  add_write_back(call.write_backs, output, to, title);
  return all_to_all(std::move(call), from, to, input_splits, output_splits, label, options);
}

intrusive_ptr<c10d::Work> RanvierBackend::all_to_all(Call call, const at::Tensor& from, const at::Tensor& to,
                                                     const Splits& input_splits, const Splits& output_splits,
                                                     CallLabel label, const c10d::AllToAllOptions& options) {
  return launch(std::move(call),
                {.collective = Collective::all_to_all,
                 .input = elements(from),
                 .output = elements(to),
                 .input_splits = input_splits,
                 .output_splits = output_splits,
                 .timeout = timeout_for(options.timeout),
                 .label = label},
                options.asyncOp);
}

}  // namespace ranvier::pytorch
