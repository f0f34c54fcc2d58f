// The plain average: one all_reduce of the floats themselves.
#include "exchange/one_work.h"
#include "ranvier/exchange.h"

namespace ranvier {
namespace {

class DenseExchange final : public Exchange {
 public:
  explicit DenseExchange(Communicator& comm) : comm_(comm) {}
  std::string_view spec() const override { return "none"; }
  std::shared_ptr<Averaging> start(const Bucket& bucket) override {
    return std::make_shared<OneWork>(comm_.start(
        {.input = bucket.values, .output = bucket.values, .op = ReduceOp::average, .priority = bucket.priority}));
  }

 private:
  Communicator& comm_;
};

}  // namespace

std::unique_ptr<Exchange> dense_exchange(Communicator& comm) { return std::make_unique<DenseExchange>(comm); }

}  // namespace ranvier
