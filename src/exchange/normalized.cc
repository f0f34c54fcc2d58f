// Codes whose error is a share of what each value usually is. A quantizer's step follows from the largest value of a
// block, and so does its error, also where values are always small. SGD hardly minds those; Adam divides each value by
// its own root mean square, so that there an error weighs as much as anywhere, and raises what is divided by: steps
// become shorter where they are not lost in noise. So each value is divided first by the mean magnitude m that averages
// have had in its place, which all ranks have alike, coded, averaged, and multiplied by m again:
//   m <- m + (|average| - m) / 128
// m stands in units of what is usual in the bucket, and values that are always less than a sixteenth of that are
// divided by no less: where nothing has ever been there is no measure, and what comes first would outweigh its block.
// What is usual is the square of the mean root of m, in which a value among thousands that was once huge hardly counts.
//
// 1-bit Adam (Tang et al., ICML 2021, arXiv:2102.02888) rests on the same thing, that what Adam divides by changes
// slowly, and keeps it from errors by freezing it; here it stays the optimizer's own.
#include "ranvier/normalized.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "exchange/coded_slice.h"
#include "exchange/followed.h"
#include "exchange/residuals.h"
#include "kernel/normalize.h"
#include "kernel/vectors.h"

namespace ranvier {
namespace {

constexpr double floor_below_usual = 16;

// In a Residuals::State: `residual` is m.
class NormalizedAveraging final : public FollowedAveraging {
 public:
  NormalizedAveraging(std::shared_ptr<Residuals::State> state, std::span<float> bucket)
      : state_(std::move(state)), bucket_(bucket), factor_(normalizing_factor(state_->residual)) {}

  void start(Exchange& exchange, const Bucket& bucket) {
    normalize(bucket_, state_->residual, factor_);
    begin(exchange.start(bucket));
  }

 private:
  // Nothing is learnt from a slice that went plain: there are huge values in it, or such that are not finite.
  void follow() override {
    for (std::size_t begin = 0; begin < bucket_.size(); begin += slice_values) {
      const std::size_t size = std::min(slice_values, bucket_.size() - begin);
      const auto values = bucket_.subspan(begin, size), magnitudes = std::span(state_->residual).subspan(begin, size);
      denormalize(values, magnitudes, factor_);
      if (!went_plain(begin)) follow_magnitudes(values, magnitudes);
    }
  }

  const std::shared_ptr<Residuals::State> state_;
  const std::span<float> bucket_;
  const float factor_;
};

class NormalizedExchange final : public Exchange {
 public:
  NormalizedExchange(std::unique_ptr<Exchange> inner, std::string spec, Rank world)
      : spec_(std::move(spec)), inner_(std::move(inner)), magnitudes_(1, spec_, world), nothing_(0, spec_, world) {}
  std::string_view spec() const override { return spec_; }
  std::uint64_t plain_buckets() const override { return inner_->plain_buckets(); }
  std::size_t state_bytes() const override { return inner_->state_bytes() + magnitudes_.bytes(); }

  std::shared_ptr<Averaging> start(const Bucket& bucket) override {
    auto averaging = std::make_shared<NormalizedAveraging>(magnitudes_.of(bucket), bucket.values);
    averaging->start(*inner_, bucket);
    return averaging;
  }
  // Behind what is owed, which is nothing: other exchanges look for that first.
  std::vector<std::byte> save(const Bucket& bucket) override {
    auto kept = inner_->save(bucket);
    if (kept.empty()) kept = nothing_.save(bucket, 0);
    Residuals::append(kept, magnitudes_.save(bucket, 0));
    return kept;
  }
  // In another world they begin anew: some of its ranks may have none.
  void restore(const Bucket& bucket, ConstBytes kept) override {
    std::uint64_t ignored = 0;
    const ConstBytes more = nothing_.restore(bucket, kept, ignored);
    inner_->restore(bucket, kept);
    if (magnitudes_.wrote(bucket, more) && magnitudes_.is_of_this_world(more))
      magnitudes_.restore(bucket, more, ignored);
  }

 private:
  const std::string spec_;
  const std::unique_ptr<Exchange> inner_;
  Residuals magnitudes_, nothing_;
};

}  // namespace

float normalizing_factor(std::span<const float> magnitudes) {
  const double roots = kernel::sum_of_roots(magnitudes.data(), magnitudes.size()),
               root = roots / static_cast<double>(std::max<std::size_t>(magnitudes.size(), 1)),
               factor = floor_below_usual / (root * root);
  return factor < 0x1p100 ? static_cast<float>(factor) : 0;
}
void normalize(std::span<float> values, std::span<const float> magnitudes, float factor) {
  kernel::divide_by_usual(values.data(), magnitudes.data(), factor, values.size());
}
void denormalize(std::span<float> values, std::span<const float> magnitudes, float factor) {
  kernel::multiply_by_usual(values.data(), magnitudes.data(), factor, values.size());
}
void follow_magnitudes(std::span<const float> values, std::span<float> magnitudes) {
  kernel::follow_magnitudes(values.data(), magnitudes.data(), values.size());
}

std::unique_ptr<Exchange> normalized_exchange(std::unique_ptr<Exchange> inner, std::string spec, Rank world) {
  return std::make_unique<NormalizedExchange>(std::move(inner), std::move(spec), world);
}

}  // namespace ranvier
