// The parameters of a model and their gradients, each in one run of memory, and the averaging of the gradients by
// buckets that start on their way while backward still computes the rest.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/exchange.h"

namespace ranvier::trainer {

class StepRecorder;
struct RecordedTensor;

class GradientBuckets {
 public:
  // Moves `parameters` (f32, on the CPU, in the order in which forward uses them) into memory of its own and watches
  // their gradients. `exchange`, over `comm`, outlives it. A bucket is closed once it holds `bucket_bytes`.
  GradientBuckets(std::vector<at::Tensor> parameters, Communicator& comm, Exchange& exchange, std::size_t bucket_bytes);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  // Before each backward. Not `averaged`: this worker keeps the gradients of its own.
  void clear(bool averaged = true);
  // Gradients of several backward passes add up: all but the last are announced, and start no bucket.
  void expect_another_pass(bool another) { another_pass_ = another; }
  // After the last: waits until the gradients are their average over all workers. Returns the time that took.
  std::chrono::nanoseconds finish();
  // In the step that finish() has ended: how long buckets were under way before it was called, while backward computed.
  std::chrono::nanoseconds hidden() const { return hidden_; }

  // From the next clear() on, which is not to be between clear() and finish(). `exchange` outlives this; what the one
  // before it held back is lost. Not `early`: nothing starts before finish(), and floats go as one bucket then.
  void exchange_by(Exchange& exchange, bool early = true);

  // The same with buckets of other sizes. Not between clear() and finish(); what the exchange keeps of tensors stays.
  void cut(std::size_t bucket_bytes);

  // Tells `recorder`, which lives until it is taken away again (null), of each gradient, and starts no bucket before
  // finish(). Not between clear() and finish().
  void record(StepRecorder* recorder) { recorder_ = recorder; }
  // Names and sizes, in the order of parameters().
  std::vector<RecordedTensor> tensors() const;

  // What the exchange keeps of all buckets, for checkpoints.
  std::vector<std::byte> save_state();
  void restore_state(ConstBytes kept);

  // All of them, flat, in the order in which gradients become ready: last layer first.
  at::Tensor& parameters() { return parameters_; }
  at::Tensor& gradients() { return gradients_; }
  std::size_t count() const { return buckets_.size(); }
  const std::vector<at::Tensor>& by_tensor() const { return tensors_; }
  // What they consist of, in their order.
  std::vector<Tensor> shapes() const;

 private:
  struct Bucket {
    std::span<float> gradients;
    std::vector<Tensor> tensors = {};
    std::size_t missing = 0;  // whose gradients backward has not yet computed
    std::shared_ptr<Averaging> averaging = nullptr;
  };
  class ReadyHook;

  std::vector<Bucket> buckets_of(std::size_t bytes) const;
  void ready(std::size_t bucket, std::size_t tensor);
  void start_in_order(bool all);

  Exchange* exchange_;
  std::vector<at::Tensor> tensors_;  // last layer first
  at::Tensor parameters_;
  at::Tensor gradients_;
  std::size_t bucket_bytes_;
  std::vector<Bucket> buckets_;
  StepRecorder* recorder_ = nullptr;
  bool averaged_ = true;
  bool early_ = true;
  bool another_pass_ = false;
  std::chrono::steady_clock::time_point first_started_{};
  std::chrono::nanoseconds hidden_{};
  std::size_t next_ = 0;  // the bucket to be started next: all workers start them in the same order
};

}  // namespace ranvier::trainer
