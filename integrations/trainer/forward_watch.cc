#include "integrations/trainer/forward_watch.h"

#include <ATen/core/ivalue.h>

#include <algorithm>
#include <memory>

#include "integrations/trainer/step_recorder.h"

namespace ranvier::trainer {

thread_local ForwardWatch* ForwardWatch::current_ = nullptr;

struct ForwardWatch::Used : at::ObserverContext {
  explicit Used(std::size_t number) : tensor(number) {}
  const std::size_t tensor;
};

ForwardWatch::ForwardWatch(std::span<const at::Tensor> parameters, StepRecorder& recorder) : recorder_(recorder) {
  for (std::size_t number = 0; number < parameters.size(); ++number) {
    const auto* const memory = static_cast<const char*>(parameters[number].const_data_ptr());
    ranges_.push_back({memory, memory + parameters[number].nbytes(), number});
  }
  std::ranges::sort(ranges_, {}, &Range::begin);
  current_ = this;
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&begin, &end).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

ForwardWatch::~ForwardWatch() {
  at::removeCallback(handle_);
  current_ = nullptr;
}

std::unique_ptr<at::ObserverContext> ForwardWatch::begin(const at::RecordFunction& operation) {
  if (current_->is_inside_) return nullptr;  // operations consist of others
  const Range* found = nullptr;
  const auto look_at = [&](const at::Tensor& input) {
    const Range* const range = current_->find(input);
    // A weight and its bias are one layer's: that of the weight, which is the later one in the order of gradients.
    if (range != nullptr && (found == nullptr || found->tensor < range->tensor)) found = range;
  };
  for (const c10::IValue& input : operation.inputs()) {
    if (input.isTensor())
      look_at(input.toTensor());
    else if (input.isTensorList())
      for (const at::Tensor& each : input.toTensorVector()) look_at(each);
  }
  if (found == nullptr) return nullptr;
  current_->is_inside_ = true;
  current_->recorder_.enter();
  return std::make_unique<Used>(found->tensor);
}

void ForwardWatch::end(const at::RecordFunction&, at::ObserverContext* context) {
  if (context == nullptr || current_ == nullptr) return;
  current_->is_inside_ = false;
  current_->recorder_.pass(static_cast<Used*>(context)->tensor);
}

const ForwardWatch::Range* ForwardWatch::find(const at::Tensor& input) const {
  if (!input.defined() || !input.has_storage() || !input.device().is_cpu()) return nullptr;
  const auto* const memory = static_cast<const char*>(input.const_data_ptr());
  const auto after = std::ranges::upper_bound(ranges_, memory, {}, &Range::begin);
  if (after == ranges_.begin()) return nullptr;
  const Range& range = *std::prev(after);
  return memory < range.end ? &range : nullptr;
}

}  // namespace ranvier::trainer
