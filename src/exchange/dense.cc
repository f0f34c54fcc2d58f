// The plain average: one all_reduce of the floats themselves.
#include "ranvier/exchange.h"

namespace ranvier {
namespace {

class DenseAveraging final : public Averaging {
 public:
  explicit DenseAveraging(Work work) : work_(std::move(work)) {}
  void wait() override { work_.wait(); }
  bool done() const override { return work_.done(); }
  std::exception_ptr error() const override { return work_.error(); }
  void on_done(std::function<void()> then) override { work_.on_done(std::move(then)); }

 private:
  Work work_;
};

class DenseExchange final : public Exchange {
 public:
  explicit DenseExchange(Communicator& comm) : comm_(comm) {}
  std::string_view spec() const override { return "none"; }
  std::shared_ptr<Averaging> start(const Bucket& bucket) override {
    return std::make_shared<DenseAveraging>(
        comm_.start({.input = bucket.values, .output = bucket.values, .op = ReduceOp::average}));
  }

 private:
  Communicator& comm_;
};

}  // namespace

std::unique_ptr<Exchange> dense_exchange(Communicator& comm) { return std::make_unique<DenseExchange>(comm); }

}  // namespace ranvier
