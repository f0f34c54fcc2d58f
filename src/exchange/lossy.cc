// Over a transport that may lose gradients ("udp:loss=0.01"): one all_reduce that does not wait for the last packets,
// with error feedback: what this rank knows was lost of its own is added to the next step's gradients.
#include "exchange/one_work.h"
#include "exchange/residuals.h"
#include "kernel/vectors.h"
#include "ranvier/exchange.h"

namespace ranvier {
namespace {

class LossyExchange final : public Exchange {
 public:
  LossyExchange(Communicator& comm, RanksEnd ranks) : comm_(comm), ranks_(ranks) {}
  std::string_view spec() const override { return "none"; }
  std::size_t state_bytes() const override { return residuals_.bytes(); }
  std::vector<std::byte> save(const Bucket& bucket) override { return residuals_.save(bucket, 0); }
  void restore(const Bucket& bucket, ConstBytes kept) override {
    std::uint64_t unused = 0;
    residuals_.restore(bucket, kept, unused);
  }

  std::shared_ptr<Averaging> start(const Bucket& bucket) override {
    auto state = residuals_.of(bucket);
    const std::span<float> owed = state->residual;
    kernel::add(bucket.values.data(), owed.data(), bucket.values.data(), owed.size());
    Work work = comm_.start({.input = bucket.values,
                             .output = bucket.values,
                             .op = ReduceOp::average,
                             .priority = bucket.priority,
                             .tolerates_loss = true,
                             .may_differ = ranks_ == RanksEnd::apart,
                             .lost = owed});
    work.on_done([state = std::move(state)] {});  // which lives until nothing is written to it any more
    return std::make_shared<OneWork>(std::move(work));
  }

 private:
  Communicator& comm_;
  const RanksEnd ranks_;
  Residuals residuals_{1, "none", comm_.world()};
};

}  // namespace

std::unique_ptr<Exchange> lossy_exchange(Communicator& comm, RanksEnd ranks) {
  return std::make_unique<LossyExchange>(comm, ranks);
}

}  // namespace ranvier
