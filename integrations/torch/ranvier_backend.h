// The backend's class: what each c10d call means as requests to a Communicator. Its members are defined by subject:
// backend.cc (life and launching), bounded_loss.cc, collectives.cc, coalesced.cc, lists.cc, messages.cc,
// monitored_barrier.cc, several.cc, sparse.cc.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "integrations/torch/arguments.h"
#include "integrations/torch/work.h"
#include "ranvier/communicator.h"

namespace ranvier::pytorch {

using c10::intrusive_ptr;
using std::chrono::milliseconds;

class RanvierBackend final : public c10d::Backend {
 public:
  explicit RanvierBackend(std::unique_ptr<Communicator> communicator);
  ~RanvierBackend() override;

  const std::string getBackendName() const override { return "ranvier"; }
  // A copy: split_group() writes the timeout and the name of the new group into what it gets here.
  intrusive_ptr<Options> getBackendOptions() override { return c10::make_intrusive<Options>(*options_); }
  void setTimeout(milliseconds timeout) override { options_->timeout = timeout; }
  void setSequenceNumberForGroup() override {}  // every rank counts from 0
  // The number that errors give the next collective. Messages do not count: they are not the same on all ranks, and
  // TORCH_DISTRIBUTED_DEBUG=DETAIL compares.
  std::uint64_t getSequenceNumberForGroup() override { return collectives_; }
  bool supportsSplitting() const override { return true; }
  void enableCollectivesTiming() override {}  // there is nothing to start: the flight recorder times every operation

  // A group of some of this group's ranks, in the order given, met through `store`; null on the other ranks.
  intrusive_ptr<c10d::Backend> split(const intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                     const intrusive_ptr<Options>& options) override;
  // A group of ranks that come from several groups, with this one's settings.
  intrusive_ptr<c10d::Backend> merge(const intrusive_ptr<c10d::Store>& store, const intrusive_ptr<Options>& options,
                                     const int& rank, const int& size) override;

  // ---- One tensor a rank: collectives.cc

  intrusive_ptr<c10d::Work> allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  intrusive_ptr<c10d::Work> allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  intrusive_ptr<c10d::Work> broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  intrusive_ptr<c10d::Work> reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  // ---- A tensor and one of world times its size, or many such pairs: coalesced.cc

  intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                            const c10d::AllgatherOptions& options) override;
  intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::ReduceScatterOptions& options) override;
  intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_rows,
                                          std::vector<std::int64_t>& input_rows,
                                          const c10d::AllToAllOptions& options) override;
  intrusive_ptr<c10d::Work> allreduce_coalesced(Tensors& tensors,
                                                const c10d::AllreduceCoalescedOptions& options) override;
  intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                            const c10d::AllgatherOptions& options) override;
  intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                            const c10d::ReduceScatterOptions& options) override;

  // ---- A tensor and a list of one tensor for each rank: lists.cc

  intrusive_ptr<c10d::Work> allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                      const c10d::AllgatherOptions& options) override;
  intrusive_ptr<c10d::Work> allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                const c10d::AllgatherOptions& options) override;
  intrusive_ptr<c10d::Work> reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                           const c10d::ReduceScatterOptions& options) override;
  intrusive_ptr<c10d::Work> alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  intrusive_ptr<c10d::Work> gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                   const c10d::GatherOptions& options) override;
  intrusive_ptr<c10d::Work> scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                    const c10d::ScatterOptions& options) override;

  // ---- Messages: messages.cc

  intrusive_ptr<c10d::Work> send(Tensors& tensors, int to, int tag) override;
  intrusive_ptr<c10d::Work> recv(Tensors& tensors, int from, int tag) override;
  intrusive_ptr<c10d::Work> recvAnysource(Tensors& tensors, int tag) override;

  // ---- Gradients that know what was lost of them: bounded_loss.cc, see backend.h

  intrusive_ptr<c10d::Work> average_gradients(const at::Tensor& gradients, const at::Tensor& lost, bool may_differ);
  void realign(const at::Tensor& parameters);

  // ---- The end: backend.cc

  // Throws DistBackendError where the ranks turn out to have called different collectives, and none has failed of it.
  void shutdown() override;
  void abort() override;

  // Throws ValueError that says why there is none.
  std::shared_ptr<Communicator> require_communicator() const;

 private:
  // Null after shutdown, and in a process that was forked off.
  std::shared_ptr<Communicator> current() const;
  std::optional<milliseconds> timeout_for(milliseconds of_call) const;
  // With this group's settings; `world_ranks` as CommunicatorOptions has them.
  intrusive_ptr<c10d::Backend> form(const intrusive_ptr<c10d::Store>& store, const intrusive_ptr<Options>& options,
                                    Rank rank, Rank size, std::vector<Rank> world_ranks);

  intrusive_ptr<PendingWork> pending(Call call, std::uint64_t number);
  // A caller who will wait at once runs the operations here and now: that wakes no other thread.
  intrusive_ptr<c10d::Work> launch(Call call, std::span<const Request> requests, bool asynchronous);
  intrusive_ptr<c10d::Work> launch(Call call, const Request& request, bool asynchronous) {
    return launch(std::move(call), std::span(&request, 1), asynchronous);
  }

  intrusive_ptr<c10d::Work> all_reduce_each(c10d::OpType type, const char* title, const Tensors& tensors,
                                            const c10d::AllreduceOptions& options);
  intrusive_ptr<c10d::Work> all_reduce_several(const Tensors& tensors, const char* title,
                                               const c10d::AllreduceOptions& options);
  intrusive_ptr<c10d::Work> all_gather_several(const std::vector<Tensors>& outputs, const Tensors& inputs,
                                               const char* title, const c10d::AllgatherOptions& options);
  intrusive_ptr<c10d::Work> all_reduce_sparse(const at::Tensor& tensor, const c10d::AllreduceOptions& options);
  intrusive_ptr<c10d::Work> all_gather_each(c10d::OpType type, const char* title, const Tensors& outputs,
                                            const Tensors& inputs, const c10d::AllgatherOptions& options);
  intrusive_ptr<c10d::Work> reduce_scatter_each(c10d::OpType type, const char* title, const Tensors& outputs,
                                                const Tensors& inputs, const c10d::ReduceScatterOptions& options);
  intrusive_ptr<c10d::Work> all_to_all(Call call, const at::Tensor& from, const at::Tensor& to,
                                       const Splits& input_splits, const Splits& output_splits, CallLabel label,
                                       const c10d::AllToAllOptions& options);
  intrusive_ptr<c10d::Work> receive(c10d::OpType type, const char* title, Tensors& tensors, Rank from, int tag);
  // `number`: of the barrier among the collectives.
  void await_reports(Communicator& communicator, std::uint32_t number, milliseconds timeout, bool wait_all_ranks);
  void report_to_first(Communicator& communicator, std::uint32_t number, milliseconds timeout);

  const intrusive_ptr<Options> options_;
  const unsigned forks_;                        // of this process, when this was made
  std::atomic<std::uint64_t> collectives_ = 0;  // as the communicator counts them
  std::atomic<std::uint64_t> sparse_sums_ = 0;  // of them
  std::atomic<std::uint64_t> messages_ = 0;
  mutable std::mutex mutex_;
  std::shared_ptr<Communicator> communicator_;  // null after shutdown(); guarded by mutex_
};

}  // namespace ranvier::pytorch
