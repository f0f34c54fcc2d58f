#include "exchange/owed_once.h"

#include <algorithm>
#include <utility>

#include "exchange/debt.h"
#include "exchange/followed.h"
#include "kernel/vectors.h"

namespace ranvier {
namespace {

class PayingAveraging final : public FollowedAveraging {
 public:
  PayingAveraging(std::shared_ptr<Residuals::State> owed, std::span<const float> bucket)
      : owed_(std::move(owed)), bucket_(bucket) {}

 private:
  // The same bits on all ranks. No step is taken by what is not finite.
  void follow() override {
    if (kernel::all_finite(bucket_)) std::ranges::fill(owed_->residual, 0.0F);
  }

  const std::shared_ptr<Residuals::State> owed_;
  const std::span<const float> bucket_;
};

class OwedOnce final : public Exchange {
 public:
  OwedOnce(std::string spec, std::unique_ptr<Exchange> inner, Rank world)
      : spec_(spec), inner_(std::move(inner)), debt_(std::move(spec), world) {}
  std::string_view spec() const override { return spec_; }
  std::uint64_t plain_buckets() const override { return inner_->plain_buckets(); }
  std::size_t state_bytes() const override { return inner_->state_bytes() + debt_.bytes(); }
  double momentum() const override { return inner_->momentum(); }

  std::shared_ptr<Averaging> start(const Bucket& bucket) override {
    auto owed = debt_.give(bucket);
    if (!owed) return inner_->start(bucket);
    const auto averaging = std::make_shared<PayingAveraging>(std::move(owed), bucket.values);
    averaging->begin(inner_->start(bucket));
    return averaging;
  }

  std::vector<std::byte> save(const Bucket& bucket) override {
    auto kept = inner_->save(bucket);
    return debt_.is_owed(bucket) ? debt_.save(bucket, kept) : kept;
  }
  void restore(const Bucket& bucket, ConstBytes kept) override {
    if (!kept.empty()) debt_.restore(bucket, kept);
    inner_->restore(bucket, kept);
  }

 private:
  const std::string spec_;
  const std::unique_ptr<Exchange> inner_;
  Debt debt_;
};

}  // namespace

std::unique_ptr<Exchange> owed_once(std::string spec, std::unique_ptr<Exchange> inner, Rank world) {
  return std::make_unique<OwedOnce>(std::move(spec), std::move(inner), world);
}

}  // namespace ranvier
