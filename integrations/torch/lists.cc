// A tensor and a list of one tensor for each rank. The list is one run of memory to the engine: it is joined first, or
// taken apart afterwards.
#include "integrations/torch/ranvier_backend.h"
#include "integrations/torch/tensors.h"

namespace ranvier::pytorch {

intrusive_ptr<c10d::Work> RanvierBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                    const c10d::AllgatherOptions& options) {
  constexpr auto title = "ranvier:all_gather";
  if (inputs.size() > 1) return all_gather_several(outputs, inputs, title, options);
  const at::Tensor& input = single(inputs, title);
  const Tensors& parts = one_list(outputs, size_, title);
  TORCH_CHECK_VALUE(parts[static_cast<std::size_t>(rank_)].numel() == input.numel(), title, ": rank ", rank_, " gives ",
                    input.numel(), " elements and expects ", parts[static_cast<std::size_t>(rank_)].numel(),
                    " of itself");
  const at::Tensor from = packed(input);
  const at::Tensor to = joined_room(parts, input);
  Call call{c10d::OpType::ALLGATHER, title, parts, {from}, {}};
  add_write_backs(call.write_backs, parts, to, title);
  const Splits splits = splits_of(parts);
  return launch(std::move(call),
                {.collective = Collective::all_gather,
                 .input = elements(from),
                 .output = elements(to),
                 .output_splits = splits,
                 .timeout = timeout_for(options.timeout),
                 .label = label_of(from)},
                options.asyncOp);
}

// Of each input, the outputs are spread over the lists: outputs[rank][i] is what `rank` gave as its input i.
intrusive_ptr<c10d::Work> RanvierBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                              const c10d::AllgatherOptions& options) {
  constexpr auto title = "ranvier:all_gather_coalesced";
  TORCH_CHECK_VALUE(std::ssize(outputs) == size_, title, ": there are ", outputs.size(), " lists of outputs for ",
                    size_, " ranks");
  for (const Tensors& list : outputs)
    TORCH_CHECK_VALUE(list.size() == inputs.size(), title, ": there are ", inputs.size(),
                      " inputs, and a list of outputs has ", list.size());
  Call call{c10d::OpType::ALLGATHER_COALESCED, title, {}, {}, {}};
  std::vector<Request> requests;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors parts;
    for (const Tensors& list : outputs) parts.push_back(list[i]);
    require_one_each(parts, size_, title);
    for (const at::Tensor& part : parts) same_size(part, inputs[i], title);
    require_dense(inputs[i], title);
    const at::Tensor from = call.inputs.emplace_back(packed(inputs[i]));
    const at::Tensor to = joined_room(parts, inputs[i]);
    add_write_backs(call.write_backs, parts, to, title);
    call.results.insert(call.results.end(), parts.begin(), parts.end());
    requests.push_back({.collective = Collective::all_gather,
                        .input = elements(from),
                        .output = elements(to),
                        .timeout = timeout_for(options.timeout),
                        .label = label_of(from)});
  }
  return launch(std::move(call), requests, options.asyncOp);
}

intrusive_ptr<c10d::Work> RanvierBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                         const c10d::ReduceScatterOptions& options) {
  constexpr auto title = "ranvier:reduce_scatter";
  const at::Tensor& output = single(outputs, title);
  const Tensors& parts = one_list(inputs, size_, title);
  TORCH_CHECK_VALUE(parts[static_cast<std::size_t>(rank_)].numel() == output.numel(), title, ": rank ", rank_,
                    " has room for ", output.numel(), " elements, and its part of the input is ",
                    parts[static_cast<std::size_t>(rank_)].numel());
  same_type(output, parts.front(), title);
  const ReduceOp op = translate(options.reduceOp);
  const at::Tensor from = joined(parts);
  const at::Tensor to = packed_room(output);
  Call call{c10d::OpType::REDUCE_SCATTER, title, {output}, {from}, {}};
  add_write_back(call.write_backs, output, to, title);
  const Splits splits = splits_of(parts);
  return launch(std::move(call),
                {.collective = Collective::reduce_scatter,
                 .input = reducible(from, op),
                 .output = reducible(to, op),
                 .op = op,
                 .input_splits = splits,
                 .timeout = timeout_for(options.timeout),
                 .label = label_of(parts)},
                options.asyncOp);
}

intrusive_ptr<c10d::Work> RanvierBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                   const c10d::AllToAllOptions& options) {
  constexpr auto title = "ranvier:all_to_all";
  require_one_each(outputs, size_, title);
  require_one_each(inputs, size_, title);
  same_type(outputs.front(), inputs.front(), title);
  const at::Tensor from = joined(inputs);
  const at::Tensor to = joined_room(outputs, inputs.front());
  Call call{c10d::OpType::ALLTOALL, title, outputs, {from}, {}};
  add_write_backs(call.write_backs, outputs, to, title);
  Splits input_splits;
  Splits output_splits;
  for (const at::Tensor& tensor : inputs) input_splits.push_back(elements(tensor).count);
  for (const at::Tensor& tensor : outputs) output_splits.push_back(elements(tensor).count);
  return all_to_all(std::move(call), from, to, input_splits, output_splits, label_of_exchange(inputs, outputs),
                    options);
}

intrusive_ptr<c10d::Work> RanvierBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                 const c10d::GatherOptions& options) {
  constexpr auto title = "ranvier:gather";
  const at::Tensor& input = single(inputs, title);
  const at::Tensor from = packed(input);
  Call call{c10d::OpType::GATHER, title, {}, {from}, {}};
  Request request{.collective = Collective::gather,
                  .input = elements(from),
                  .output = TypedSpan(nullptr, 0, elements(from).dtype),
                  .root = static_cast<Rank>(options.rootRank),
                  .timeout = timeout_for(options.timeout),
                  .label = label_of(from)};
  if (request.root == rank_) {
    call.results = one_list(outputs, size_, title);
    for (const at::Tensor& part : call.results) same_size(part, input, title);
    const at::Tensor to = joined_room(call.results, input);
    add_write_backs(call.write_backs, call.results, to, title);
    request.output = elements(to);
  } else {
    TORCH_CHECK_VALUE(outputs.empty(), title, ": only the root, rank ", request.root, ", is given a list of outputs");
  }
  return launch(std::move(call), request, options.asyncOp);
}

intrusive_ptr<c10d::Work> RanvierBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                  const c10d::ScatterOptions& options) {
  constexpr auto title = "ranvier:scatter";
  const at::Tensor& output = single(outputs, title);
  const at::Tensor to = packed_room(output);
  Call call{c10d::OpType::SCATTER, title, {output}, {}, {}};
  add_write_back(call.write_backs, output, to, title);
  Request request{.collective = Collective::scatter,
                  .input = TypedSpan(nullptr, 0, elements(to).dtype),
                  .output = elements(to),
                  .root = static_cast<Rank>(options.rootRank),
                  .timeout = timeout_for(options.timeout),
                  .label = label_of(to)};
  if (request.root == rank_) {
    const Tensors& parts = one_list(inputs, size_, title);
    for (const at::Tensor& part : parts) same_size(part, output, title);
    const at::Tensor from = joined(parts);
    call.inputs.push_back(from);
    request.input = elements(from);
  } else {
    TORCH_CHECK_VALUE(inputs.empty(), title, ": only the root, rank ", request.root, ", is given a list of inputs");
  }
  return launch(std::move(call), request, options.asyncOp);
}

}  // namespace ranvier::pytorch
