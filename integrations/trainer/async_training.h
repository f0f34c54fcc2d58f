// Training by parameter servers: each worker, or group of workers of similar speed, at its own pace from one evaluation
// to the next.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ranvier/async_group.h"
#include "ranvier/synchronizer.h"

namespace ranvier::trainer {

// What the worker itself does.
struct AsyncWorker {
  // Computes the gradients of so many samples from this one on, counted from the start of training; zeros for none.
  std::function<void(std::uint64_t first, std::uint64_t count)> compute;
  // The learning rate once so many samples are behind all workers.
  std::function<double(std::uint64_t done)> rate;
  // Samples a second that each worker has computed lately: every rank calls.
  std::function<std::vector<double>()> speeds;
  std::span<float> gradients;
  std::span<float> parameters;
};

class AsyncTraining {
 public:
  // All ranks call with the same policy, parameters and numbers: `batch` samples of a worker in a step that all take
  // alike, `done` samples that all have used before. `comm` outlives this.
  AsyncTraining(Communicator& comm, const SyncPolicy& policy, AsyncWorker worker, std::size_t batch,
                std::uint64_t done);

  // Until all workers together have used so many samples. Then all hold the same parameters; the next call has to wait
  // for all ranks to have seen them.
  void run(std::uint64_t stop_at);
  // No more calls come; every rank says so.
  void leave() { server_.leave(); }

  std::uint64_t pushes() const { return pushes_; }             // that this worker had a part in
  std::chrono::nanoseconds waited() const { return waited_; }  // for its turn, its group and the servers
  const std::vector<std::size_t>& shares() const { return shares_; }
  const std::vector<int>& groups() const { return groups_; }

 private:
  void form_groups();

  Communicator& comm_;
  const std::optional<GroupRule> rule_;
  const AsyncWorker worker_;
  const std::size_t batch_;
  ParameterServer server_;
  std::unique_ptr<AsyncGroup> group_;
  std::vector<std::size_t> shares_;  // by rank: samples of a step
  std::vector<int> groups_;          // by rank: who pushes together
  std::vector<double> speeds_;       // by rank, when groups were last formed
  std::uint64_t pushes_ = 0;
  std::chrono::nanoseconds waited_{};
};

}  // namespace ranvier::trainer
