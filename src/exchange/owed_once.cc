#include "exchange/owed_once.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "exchange/residuals.h"
#include "kernel/vectors.h"

namespace ranvier {
namespace {

class OwedOnce final : public Exchange {
 public:
  OwedOnce(std::string spec, std::unique_ptr<Exchange> inner, Rank world)
      : spec_(std::move(spec)), inner_(std::move(inner)), world_(world) {}
  std::string_view spec() const override { return spec_; }
  std::uint64_t plain_buckets() const override { return inner_->plain_buckets(); }
  std::size_t state_bytes() const override { return inner_->state_bytes() + (owed_ ? owed_->bytes() : 0); }
  double momentum() const override { return inner_->momentum(); }

  std::shared_ptr<Averaging> start(const Bucket& bucket) override {
    if (owed_ && kernel::all_finite(bucket.values)) {  // else it may be that no step is taken by it
      const auto state = owed_->of(bucket);
      kernel::add(bucket.values.data(), state->residual.data(), bucket.values.data(), bucket.values.size());
      std::ranges::fill(state->residual, 0.0F);
      if (state->step++ == 0 && --unpaid_ == 0) owed_.reset();
    }
    return inner_->start(bucket);
  }

  // What is still owed comes first, as of every exchange.
  std::vector<std::byte> save(const Bucket& bucket) override {
    auto bytes = owed_ ? owed_->save(bucket, 0) : std::vector<std::byte>();
    const auto kept = inner_->save(bucket);
    bytes.insert(bytes.end(), kept.begin(), kept.end());
    return bytes;
  }
  void restore(const Bucket& bucket, ConstBytes kept) override {
    if (Residuals::owes(kept)) {
      if (!owed_) owed_.emplace(1, spec_, world_);
      std::uint64_t unused = 0;
      owed_->restore(bucket, kept, unused);
      owed_->of(bucket)->step = 0;
      ++unpaid_;
    }
    if (!kept.empty()) inner_->restore(bucket, kept);
  }

 private:
  const std::string spec_;
  const std::unique_ptr<Exchange> inner_;
  const Rank world_;
  std::optional<Residuals> owed_;
  std::size_t unpaid_ = 0;  // buckets that were restored and not started
};

}  // namespace

std::unique_ptr<Exchange> owed_once(std::string spec, std::unique_ptr<Exchange> inner, Rank world) {
  return std::make_unique<OwedOnce>(std::move(spec), std::move(inner), world);
}

}  // namespace ranvier
