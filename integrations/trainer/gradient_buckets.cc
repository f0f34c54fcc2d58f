#include "integrations/trainer/gradient_buckets.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <limits>

#include "base/parts.h"
#include "integrations/trainer/bucket_priority.h"
#include "integrations/trainer/step_recorder.h"
#include "ranvier/error.h"

namespace ranvier::trainer {

using std::chrono::steady_clock;

// Called by autograd, on the thread that called backward(), when the gradient of a parameter is complete.
class GradientBuckets::ReadyHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  ReadyHook(GradientBuckets& owner, std::size_t bucket, std::size_t tensor)
      : owner_(owner), bucket_(bucket), tensor_(tensor) {}
  void operator()(const torch::autograd::Variable&) override { owner_.ready(bucket_, tensor_); }

 private:
  GradientBuckets& owner_;
  std::size_t bucket_;
  std::size_t tensor_;
};

GradientBuckets::GradientBuckets(std::vector<at::Tensor> parameters, Communicator& comm, Exchange& exchange,
                                 std::size_t bucket_bytes)
    : exchange_(&exchange), tensors_(std::move(parameters)), bucket_bytes_(bucket_bytes) {
  std::reverse(tensors_.begin(), tensors_.end());
  std::int64_t total = 0;
  for (const auto& tensor : tensors_) total += tensor.numel();
  parameters_ = at::empty({total});
  // Where the other workers of this host read them without a copy.
  const auto shared = comm.allocate(static_cast<std::size_t>(total) * sizeof(float));
  gradients_ = at::from_blob(
      shared.get(), {total}, [shared](void*) {}, at::kFloat);

  const at::NoGradGuard no_grad;
  std::int64_t at = 0;
  for (auto& tensor : tensors_) {
    const std::int64_t size = tensor.numel();
    const auto place = parameters_.narrow(0, at, size).view(tensor.sizes());
    place.copy_(tensor);
    tensor.set_data(place);
    tensor.mutable_grad() = gradients_.narrow(0, at, size).view(tensor.sizes());
    at += size;
  }
  cut(bucket_bytes);
}

std::vector<GradientBuckets::Bucket> GradientBuckets::buckets_of(std::size_t bytes) const {
  std::vector<Bucket> buckets;
  auto* memory = gradients_.data_ptr<float>();
  for (std::size_t number = 0; number < tensors_.size(); ++number) {
    const auto& tensor = tensors_[number];
    const auto size = static_cast<std::size_t>(tensor.numel());
    if (buckets.empty() || buckets.back().gradients.size_bytes() >= bytes)
      buckets.push_back({.gradients = {memory, 0}});
    Bucket& bucket = buckets.back();
    bucket.gradients = {bucket.gradients.data(), bucket.gradients.size() + size};
    const auto rows = static_cast<std::size_t>(tensor.dim() > 0 ? tensor.size(0) : 1);
    bucket.tensors.push_back({.id = number, .rows = rows, .columns = size / std::max<std::size_t>(rows, 1)});
    memory += size;
  }
  return buckets;
}

void GradientBuckets::cut(std::size_t bucket_bytes) {
  bucket_bytes_ = bucket_bytes;
  const bool as_one = !early_ && exchange_->spec() == "none";
  buckets_ = buckets_of(as_one ? std::numeric_limits<std::size_t>::max() : bucket_bytes);
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket)
    for (const Tensor& tensor : buckets_[bucket].tensors)
      torch::autograd::impl::set_post_acc_grad_hooks(tensors_[tensor.id],
                                                     std::make_unique<ReadyHook>(*this, bucket, tensor.id));
  next_ = 0;
}

void GradientBuckets::exchange_by(Exchange& exchange, bool early) {
  exchange_ = &exchange;
  early_ = early;
  cut(bucket_bytes_);
}

GradientBuckets::~GradientBuckets() {
  for (const auto& bucket : buckets_) {
    try {
      if (bucket.averaging) bucket.averaging->wait();  // into gradients_
    } catch (const std::exception&) {                  // which has been told where it was waited for, or by what failed
    }
  }
  for (auto& tensor : tensors_) torch::autograd::impl::set_post_acc_grad_hooks(tensor, nullptr);
}

void GradientBuckets::clear(bool averaged) {
  gradients_.zero_();
  averaged_ = averaged;
  another_pass_ = false;
  for (auto& bucket : buckets_) {
    bucket.missing = bucket.tensors.size();
    bucket.averaging.reset();
  }
  next_ = 0;
}

void GradientBuckets::ready(std::size_t bucket, std::size_t tensor) {
  if (another_pass_) return;
  --buckets_[bucket].missing;
  if (recorder_ != nullptr)
    recorder_->ready(tensor);
  else if (early_)
    start_in_order(false);
}

std::vector<RecordedTensor> GradientBuckets::tensors() const {
  std::vector<RecordedTensor> result;
  for (const auto& tensor : tensors_) {
    std::string shape;
    for (const auto size : tensor.sizes()) {
      if (!shape.empty()) shape += 'x';
      shape += std::to_string(size);
    }
    // Counted as the forward pass uses them.
    const std::size_t number = tensors_.size() - 1 - result.size();
    result.push_back({.name = "parameter " + std::to_string(number) + ", " + shape,
                      .bytes = static_cast<double>(tensor.numel()) * sizeof(float)});
  }
  return result;
}

// Starts the buckets that may be: in order, and only complete ones unless backward is over. Those that it left
// incomplete belong to parameters that this batch did not use, whose gradients are zero.
void GradientBuckets::start_in_order(bool all) {
  if (!averaged_) return;
  for (; next_ < buckets_.size() && (all || buckets_[next_].missing == 0); ++next_) {
    Bucket& bucket = buckets_[next_];
    if (next_ == 0) first_started_ = steady_clock::now();
    bucket.averaging = exchange_->start(
        {.values = bucket.gradients, .tensors = bucket.tensors, .priority = bucket_priority(next_, buckets_.size())});
  }
}

std::chrono::nanoseconds GradientBuckets::finish() {
  const auto backward_ended = steady_clock::now();
  hidden_ = next_ > 0 ? backward_ended - first_started_ : std::chrono::nanoseconds::zero();
  start_in_order(true);
  for (auto& bucket : buckets_)
    if (bucket.averaging) bucket.averaging->wait();
  return steady_clock::now() - backward_ended;
}

std::vector<std::byte> GradientBuckets::save_state() {
  std::vector<std::byte> all;
  for (const Bucket& bucket : buckets_of(bucket_bytes_)) {
    append_part(all, exchange_->save({.values = bucket.gradients, .tensors = bucket.tensors}));
  }
  return all;
}

void GradientBuckets::restore_state(ConstBytes kept) {
  for (const Bucket& bucket : buckets_of(bucket_bytes_)) {
    if (kept.empty())
      throw Error(ErrorKind::config,
                  "what the checkpoint kept for the codec is of other buckets; resume with the "
                  "--bucket that it was saved with");
    const ConstBytes part = take_part(kept);
    if (!part.empty()) exchange_->restore({.values = bucket.gradients, .tensors = bucket.tensors}, part);
  }
}

std::vector<Tensor> GradientBuckets::shapes() const {
  std::vector<Tensor> all;
  for (const Bucket& bucket : buckets_) all.insert(all.end(), bucket.tensors.begin(), bucket.tensors.end());
  return all;
}

}  // namespace ranvier::trainer
