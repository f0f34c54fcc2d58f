#include "integrations/torch/backend.h"

#include <ATen/ATen.h>

#include <atomic>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "integrations/torch/arguments.h"
#include "integrations/torch/errors.h"
#include "integrations/torch/tensors.h"
#include "integrations/torch/work.h"
#include "ranvier/error.h"

namespace ranvier::pytorch {
namespace {

using c10::intrusive_ptr;
using std::chrono::milliseconds;
class RanvierBackend final : public c10d::Backend {
 public:
  explicit RanvierBackend(std::unique_ptr<Communicator> communicator)
      : c10d::Backend(communicator->rank(), communicator->world()),
        options_(c10::make_intrusive<Options>("ranvier", communicator->options().timeout)),
        communicator_(std::move(communicator)) {
    init();
  }

  const std::string getBackendName() const override { return "ranvier"; }
  intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(milliseconds timeout) override { options_->timeout = timeout; }
  void setSequenceNumberForGroup() override {}  // every rank counts from 0
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }

  // ---- One tensor a rank

  intrusive_ptr<c10d::Work> allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    constexpr auto title = "ranvier:all_reduce";
    const at::Tensor& tensor = single(tensors, title);
    return all_reduce_each(c10d::OpType::ALLREDUCE, title, {tensor}, options);
  }

  intrusive_ptr<c10d::Work> allreduce_coalesced(Tensors& tensors,
                                                const c10d::AllreduceCoalescedOptions& options) override {
    constexpr auto title = "ranvier:all_reduce_coalesced";
    for (const at::Tensor& tensor : tensors) require_dense_cpu(tensor, title);
    return all_reduce_each(c10d::OpType::ALLREDUCE_COALESCED, title, tensors, options);
  }

  intrusive_ptr<c10d::Work> allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions&) override {
    single(tensors, "ranvier:all_reduce of a sparse tensor");  // says what to do
    return {};
  }

  intrusive_ptr<c10d::Work> broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    constexpr auto title = "ranvier:broadcast";
    const at::Tensor& tensor = single(tensors, title);
    const Rank root = static_cast<Rank>(options.rootRank);
    const at::Tensor memory = root == rank_ ? packed(tensor) : packed_room(tensor);
    Call call{c10d::OpType::BROADCAST, title, {tensor}, {memory}, {}};
    if (root != rank_) add_write_back(call.write_backs, tensor, memory);
    const TypedSpan span = elements(memory);
    return launch(std::move(call),
                  {.collective = Collective::broadcast,
                   .input = span,
                   .output = span,
                   .root = root,
                   .timeout = timeout_for(options.timeout)},
                  options.asyncOp);
  }

  intrusive_ptr<c10d::Work> reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    constexpr auto title = "ranvier:reduce";
    const at::Tensor& tensor = single(tensors, title);
    const Rank root = static_cast<Rank>(options.rootRank);
    const ReduceOp op = translate(options.reduceOp);
    const at::Tensor memory = packed(tensor);
    Call call{c10d::OpType::REDUCE, title, {tensor}, {memory}, {}};
    const TypedSpan span = reducible(memory, op);
    if (root == rank_) add_write_back(call.write_backs, tensor, memory);
    return launch(std::move(call),
                  {.collective = Collective::reduce,
                   .input = span,
                   .output = root == rank_ ? span : TypedSpan(nullptr, 0, span.dtype),
                   .op = op,
                   .root = root,
                   .timeout = timeout_for(options.timeout)},
                  options.asyncOp);
  }

  intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override {
    return launch({c10d::OpType::BARRIER, "ranvier:barrier", {}, {}, {}},
                  {.collective = Collective::barrier, .timeout = timeout_for(options.timeout)}, options.asyncOp);
  }

  // ---- A tensor and one of world times its size

  intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                            const c10d::AllgatherOptions& options) override {
    Tensors outputs{output};
    Tensors inputs{input};
    return all_gather_each(c10d::OpType::_ALLGATHER_BASE, "ranvier:all_gather_into_tensor", outputs, inputs, options);
  }

  intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                            const c10d::AllgatherOptions& options) override {
    return all_gather_each(c10d::OpType::COALESCED, "ranvier:all_gather_into_tensor_coalesced", outputs, inputs,
                           options);
  }

  intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::ReduceScatterOptions& options) override {
    Tensors outputs{output};
    Tensors inputs{input};
    return reduce_scatter_each(c10d::OpType::_REDUCE_SCATTER_BASE, "ranvier:reduce_scatter_tensor", outputs, inputs,
                               options);
  }

  intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                            const c10d::ReduceScatterOptions& options) override {
    return reduce_scatter_each(c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED, "ranvier:reduce_scatter_tensor_coalesced",
                               outputs, inputs, options);
  }

  intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_rows,
                                          std::vector<std::int64_t>& input_rows,
                                          const c10d::AllToAllOptions& options) override {
    constexpr auto title = "ranvier:all_to_all_single";
    require_dense_cpu(output, title);
    require_dense_cpu(input, title);
    same_type(output, input, title);
    const Splits input_splits = splits_of(input, input_rows, size_, title);
    const Splits output_splits = splits_of(output, output_rows, size_, title);
    const at::Tensor from = packed(input);
    const at::Tensor to = packed_room(output);
    Call call{c10d::OpType::ALLTOALL_BASE, title, {output}, {from, to}, {}};
    add_write_back(call.write_backs, output, to);
    return all_to_all(std::move(call), from, to, input_splits, output_splits, options);
  }

  // ---- A tensor and a list of one tensor for each rank

  intrusive_ptr<c10d::Work> allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                      const c10d::AllgatherOptions& options) override {
    constexpr auto title = "ranvier:all_gather";
    const at::Tensor& input = single(inputs, title);
    const Tensors& parts = one_list(outputs, size_, title);
    TORCH_CHECK_VALUE(parts[static_cast<std::size_t>(rank_)].numel() == input.numel(), title, ": rank ", rank_,
                      " gives ", input.numel(), " elements and expects ",
                      parts[static_cast<std::size_t>(rank_)].numel(), " of itself");
    const at::Tensor from = packed(input);
    const at::Tensor to = joined_room(parts, input);
    Call call{c10d::OpType::ALLGATHER, title, parts, {from, to}, {}};
    add_write_backs(call.write_backs, parts, to);
    const Splits splits = splits_of(parts);
    return launch(std::move(call),
                  {.collective = Collective::all_gather,
                   .input = elements(from),
                   .output = elements(to),
                   .output_splits = splits,
                   .timeout = timeout_for(options.timeout)},
                  options.asyncOp);
  }

  intrusive_ptr<c10d::Work> reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                           const c10d::ReduceScatterOptions& options) override {
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
    Call call{c10d::OpType::REDUCE_SCATTER, title, {output}, {from, to}, {}};
    add_write_back(call.write_backs, output, to);
    const Splits splits = splits_of(parts);
    return launch(std::move(call),
                  {.collective = Collective::reduce_scatter,
                   .input = reducible(from, op),
                   .output = reducible(to, op),
                   .op = op,
                   .input_splits = splits,
                   .timeout = timeout_for(options.timeout)},
                  options.asyncOp);
  }

  intrusive_ptr<c10d::Work> alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    constexpr auto title = "ranvier:all_to_all";
    require_one_each(outputs, size_, title);
    require_one_each(inputs, size_, title);
    same_type(outputs.front(), inputs.front(), title);
    const at::Tensor from = joined(inputs);
    const at::Tensor to = joined_room(outputs, inputs.front());
    Call call{c10d::OpType::ALLTOALL, title, outputs, {from, to}, {}};
    add_write_backs(call.write_backs, outputs, to);
    Splits input_splits;
    Splits output_splits;
    for (const at::Tensor& tensor : inputs) input_splits.push_back(elements(tensor).count);
    for (const at::Tensor& tensor : outputs) output_splits.push_back(elements(tensor).count);
    return all_to_all(std::move(call), from, to, input_splits, output_splits, options);
  }

  intrusive_ptr<c10d::Work> gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                   const c10d::GatherOptions& options) override {
    constexpr auto title = "ranvier:gather";
    const at::Tensor& input = single(inputs, title);
    const at::Tensor from = packed(input);
    Call call{c10d::OpType::GATHER, title, {}, {from}, {}};
    Request request{.collective = Collective::gather,
                    .input = elements(from),
                    .output = TypedSpan(nullptr, 0, elements(from).dtype),
                    .root = static_cast<Rank>(options.rootRank),
                    .timeout = timeout_for(options.timeout)};
    if (request.root == rank_) {
      call.results = one_list(outputs, size_, title);
      for (const at::Tensor& part : call.results) same_size(part, input, title);
      const at::Tensor to = joined_room(call.results, input);
      call.staging.push_back(to);
      add_write_backs(call.write_backs, call.results, to);
      request.output = elements(to);
    } else {
      TORCH_CHECK_VALUE(outputs.empty(), title, ": only the root, rank ", request.root, ", is given a list of outputs");
    }
    return launch(std::move(call), request, options.asyncOp);
  }

  intrusive_ptr<c10d::Work> scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                    const c10d::ScatterOptions& options) override {
    constexpr auto title = "ranvier:scatter";
    const at::Tensor& output = single(outputs, title);
    const at::Tensor to = packed_room(output);
    Call call{c10d::OpType::SCATTER, title, {output}, {to}, {}};
    add_write_back(call.write_backs, output, to);
    Request request{.collective = Collective::scatter,
                    .input = TypedSpan(nullptr, 0, elements(to).dtype),
                    .output = elements(to),
                    .root = static_cast<Rank>(options.rootRank),
                    .timeout = timeout_for(options.timeout)};
    if (request.root == rank_) {
      const Tensors& parts = one_list(inputs, size_, title);
      for (const at::Tensor& part : parts) same_size(part, output, title);
      const at::Tensor from = joined(parts);
      call.staging.push_back(from);
      request.input = elements(from);
    } else {
      TORCH_CHECK_VALUE(inputs.empty(), title, ": only the root, rank ", request.root, ", is given a list of inputs");
    }
    return launch(std::move(call), request, options.asyncOp);
  }

  // ---- Messages

  intrusive_ptr<c10d::Work> send(Tensors& tensors, int to, int tag) override {
    const at::Tensor memory = packed(single(tensors, "ranvier:send"));
    const auto communicator = require_communicator();
    auto work = pending({c10d::OpType::SEND, "ranvier:send", {}, {memory}, {}});
    work->add([&] {
      return communicator->start_send(elements(memory), to, static_cast<std::uint64_t>(tag), options_->timeout);
    });
    work->seal();
    return work;
  }

  intrusive_ptr<c10d::Work> recv(Tensors& tensors, int from, int tag) override {
    return receive(c10d::OpType::RECV, "ranvier:recv", tensors, from, tag);
  }

  intrusive_ptr<c10d::Work> recvAnysource(Tensors& tensors, int tag) override {
    return receive(c10d::OpType::RECVANYSOURCE, "ranvier:recv_any_source", tensors, Communicator::any_rank, tag);
  }

  // ---- The end

  void shutdown() override {
    std::shared_ptr<Communicator> leaving;
    const std::lock_guard lock(mutex_);
    leaving.swap(communicator_);
  }

  void abort() override { abort("rank " + std::to_string(rank_) + " called abort()"); }

  void abort(const std::string& reason) {
    if (const auto communicator = current()) communicator->abort(reason);
  }

 private:
  std::shared_ptr<Communicator> current() const {
    const std::lock_guard lock(mutex_);
    return communicator_;
  }

  std::shared_ptr<Communicator> require_communicator() const {
    auto communicator = current();
    TORCH_CHECK_VALUE(communicator, "this process group was shut down, on rank ", rank_, ": initialize another one");
    return communicator;
  }

  std::optional<milliseconds> timeout_for(milliseconds of_call) const {
    return of_call > milliseconds::zero() ? of_call : options_->timeout;  // negative: c10d::kUnsetTimeout
  }

  intrusive_ptr<PendingWork> pending(Call call) {
    return c10::make_intrusive<PendingWork>(rank_, std::move(call), sequence_++);
  }

  intrusive_ptr<c10d::Work> launch(Call call, const Request& request, bool asynchronous) {
    return launch(std::move(call), std::span(&request, 1), asynchronous);
  }

  // A caller who will wait at once runs the operation here and now: that wakes no other thread.
  intrusive_ptr<c10d::Work> launch(Call call, std::span<const Request> requests, bool asynchronous) {
    const auto communicator = require_communicator();
    auto work = pending(std::move(call));
    for (const Request& request : requests) {
      if (asynchronous)
        work->add([&] { return communicator->start(request); });
      else
        work->run([&] { communicator->run(request); });
    }
    work->seal();
    return work;
  }

  intrusive_ptr<c10d::Work> all_reduce_each(c10d::OpType type, const char* title, const Tensors& tensors,
                                            const c10d::AllreduceOptions& options) {
    const ReduceOp op = translate(options.reduceOp);
    Call call{type, title, tensors, {}, {}};
    std::vector<Request> requests;
    for (const at::Tensor& tensor : tensors) {
      const at::Tensor& memory = call.staging.emplace_back(packed(tensor));
      add_write_back(call.write_backs, tensor, memory);
      const TypedSpan span = reducible(memory, op);
      requests.push_back({.collective = Collective::all_reduce,
                          .input = span,
                          .output = span,
                          .op = op,
                          .timeout = timeout_for(options.timeout)});
    }
    return launch(std::move(call), requests, options.asyncOp);
  }

  intrusive_ptr<c10d::Work> all_gather_each(c10d::OpType type, const char* title, const Tensors& outputs,
                                            const Tensors& inputs, const c10d::AllgatherOptions& options) {
    require_pairs(outputs, inputs, title);
    Call call{type, title, outputs, {}, {}};
    std::vector<Request> requests;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      require_multiple(outputs[i], inputs[i], size_, title);
      const at::Tensor from = call.staging.emplace_back(packed(inputs[i]));
      const at::Tensor to = call.staging.emplace_back(packed_room(outputs[i]));
      add_write_back(call.write_backs, outputs[i], to);
      requests.push_back({.collective = Collective::all_gather,
                          .input = elements(from),
                          .output = elements(to),
                          .timeout = timeout_for(options.timeout)});
    }
    return launch(std::move(call), requests, options.asyncOp);
  }

  intrusive_ptr<c10d::Work> reduce_scatter_each(c10d::OpType type, const char* title, const Tensors& outputs,
                                                const Tensors& inputs, const c10d::ReduceScatterOptions& options) {
    require_pairs(outputs, inputs, title);
    const ReduceOp op = translate(options.reduceOp);
    Call call{type, title, outputs, {}, {}};
    std::vector<Request> requests;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      require_multiple(inputs[i], outputs[i], size_, title);
      const at::Tensor from = call.staging.emplace_back(packed(inputs[i]));
      const at::Tensor to = call.staging.emplace_back(packed_room(outputs[i]));
      add_write_back(call.write_backs, outputs[i], to);
      requests.push_back({.collective = Collective::reduce_scatter,
                          .input = reducible(from, op),
                          .output = reducible(to, op),
                          .op = op,
                          .timeout = timeout_for(options.timeout)});
    }
    return launch(std::move(call), requests, options.asyncOp);
  }

  intrusive_ptr<c10d::Work> all_to_all(Call call, const at::Tensor& from, const at::Tensor& to,
                                       const Splits& input_splits, const Splits& output_splits,
                                       const c10d::AllToAllOptions& options) {
    return launch(std::move(call),
                  {.collective = Collective::all_to_all,
                   .input = elements(from),
                   .output = elements(to),
                   .input_splits = input_splits,
                   .output_splits = output_splits,
                   .timeout = timeout_for(options.timeout)},
                  options.asyncOp);
  }

  intrusive_ptr<c10d::Work> receive(c10d::OpType type, const char* title, Tensors& tensors, Rank from, int tag) {
    const at::Tensor& tensor = single(tensors, title);
    const at::Tensor memory = packed_room(tensor);
    const auto communicator = require_communicator();
    Call call{type, title, {tensor}, {memory}, {}};
    add_write_back(call.write_backs, tensor, memory);
    auto work = pending(std::move(call));
    work->add([&] {
      return communicator->start_recv(elements(memory), from, static_cast<std::uint64_t>(tag), options_->timeout);
    });
    work->seal();
    return work;
  }

  const intrusive_ptr<Options> options_;
  std::atomic<std::uint64_t> sequence_ = 0;
  mutable std::mutex mutex_;
  std::shared_ptr<Communicator> communicator_;  // null after shutdown(); guarded by mutex_
};

}  // namespace

intrusive_ptr<c10d::Backend> make_backend(const intrusive_ptr<c10d::Store>& store, Rank rank, Rank world,
                                          const CommunicatorOptions& options) {
  return translating_errors([&] {
    const auto rendezvous = torch_store(store);
    return make_backend(Communicator::connect(*rendezvous, rank, world, options));
  });
}

intrusive_ptr<c10d::Backend> make_backend(std::unique_ptr<Communicator> communicator) {
  return c10::make_intrusive<RanvierBackend>(std::move(communicator));
}

void abort(c10d::Backend& backend, const std::string& reason) {
  if (auto* mine = dynamic_cast<RanvierBackend*>(&backend)) mine->abort(reason);
}

}  // namespace ranvier::pytorch
