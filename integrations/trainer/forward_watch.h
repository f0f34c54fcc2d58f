// Which tensor of parameters the forward pass is at: torch tells of each operation, and operations on a parameter's
// memory are that parameter's layer.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace ranvier::trainer {

class StepRecorder;

// As long as it lives, tells `recorder` of the operations of this thread. One at a time on a thread.
class ForwardWatch {
 public:
  ForwardWatch(std::span<const at::Tensor> parameters, StepRecorder& recorder);
  ~ForwardWatch();
  ForwardWatch(const ForwardWatch&) = delete;
  ForwardWatch& operator=(const ForwardWatch&) = delete;

 private:
  struct Range {
    const char* begin;
    const char* end;
    std::size_t tensor;
  };
  struct Used;

  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& operation);
  static void end(const at::RecordFunction& operation, at::ObserverContext* context);
  const Range* find(const at::Tensor& input) const;

  static thread_local ForwardWatch* current_;  // callbacks are plain functions
  StepRecorder& recorder_;
  std::vector<Range> ranges_;  // by address
  at::CallbackHandle handle_;
  bool is_inside_ = false;  // an operation on a parameter
};

}  // namespace ranvier::trainer
