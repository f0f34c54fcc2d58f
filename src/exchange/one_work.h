// An average that is one operation of the communicator.
#pragma once

#include <exception>
#include <functional>
#include <utility>

#include "ranvier/exchange.h"

namespace ranvier {

class OneWork final : public Averaging {
 public:
  explicit OneWork(Work work) : work_(std::move(work)) {}
  void wait() override { work_.wait(); }
  bool done() const override { return work_.done(); }
  std::exception_ptr error() const override { return work_.error(); }
  void on_done(std::function<void()> then) override { work_.on_done(std::move(then)); }

 private:
  Work work_;
};

}  // namespace ranvier
