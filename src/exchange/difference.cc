// EF21: codes of what has changed since the last step. Every rank has an estimate h of its gradient that all others
// know by its codes; it sends a code c of g - h, and h becomes h + c. What everybody applies is the mean of the
// estimates. Where gradients settle, changes become small, and so does what a contractive code of them loses.
// Richtarik, Sokolov and Fatkhullin, "EF21: A New, Simpler, Theoretically Better, and Practically Faster Error
// Feedback", NeurIPS 2021 (arXiv:2106.05203).
//
// Nothing but error feedback is needed for it: its residual after a step is g - h, so of the difference to the last
// gradient, g' - g, it codes g' - g + residual = g' - h. So this hands differences to an exchange that feeds back, and
// adds up what comes out. Whatever that exchange does (an owner's own residual, plain buckets) stays right.
//
// But for digits: what f32 rounds while changes of a magnitude M are coded and added up, 2^-24 M or so, stays in every
// average behind it. Where averages have become much smaller than that M, all ranks take the average itself, of which
// they have the same bits, for their estimate: the mean of those is the average again, exactly, and EF21 may begin with
// any estimates.
#include "exchange/difference.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "exchange/coded_slice.h"
#include "exchange/debt.h"
#include "exchange/followed.h"
#include "exchange/residuals.h"
#include "kernel/vectors.h"

namespace ranvier {
namespace {

// In a Residuals::State: `residual` the last gradients of this rank, `velocity` the last average, and `step` 0 before
// all of a bucket has been told, then one more than the bits of the largest magnitude that averages have had since
// estimates were exact. (Bits of floats are in the order of magnitudes: buckets that come together take the larger.)
std::uint64_t step_of(float largest) { return 1 + std::uint64_t{std::bit_cast<std::uint32_t>(largest)}; }
float largest_of(std::uint64_t step) { return std::bit_cast<float>(static_cast<std::uint32_t>(step - 1)); }

// What was rounded is 2^-12 of the average, or more. The same on all ranks, as averages are.
bool lacks_digits(Residuals::State& state) {
  if (state.step == 0) return false;
  const float now = kernel::largest_magnitude(state.velocity.data(), state.velocity.size());
  const float largest = std::max(now, largest_of(state.step));
  state.step = step_of(largest);
  return largest > 0x1p12F * now;
}

class DifferenceAveraging final : public FollowedAveraging {
 public:
  // What is owed has been added to `bucket`; null: nothing.
  DifferenceAveraging(std::shared_ptr<Residuals::State> state, std::shared_ptr<Residuals::State> owed,
                      std::span<float> bucket)
      : state_(std::move(state)), owed_(std::move(owed)), bucket_(bucket), differences_(bucket.size()) {}

  void start(Exchange& exchange, std::span<const Tensor> tensors, int priority) {
    kernel::subtract(bucket_.data(), state_->residual.data(), differences_.data(), bucket_.size());
    begin(exchange.start({.values = differences_, .tensors = tensors, .priority = priority}));
  }

 private:
  void follow() override {
    bool all = true;
    for (std::size_t begin = 0; begin < bucket_.size(); begin += slice_values)
      all &= take(begin, std::min(slice_values, bucket_.size() - begin));
    if (all) state_->step = std::max(state_->step, step_of(0));
    // Also where it went plain. No step is taken by what is not finite.
    if (owed_ && kernel::all_finite(bucket_)) std::ranges::fill(owed_->residual, 0.0F);
  }

  // Where a slice went plain, the inner exchange holds back what it did before, and so the last gradient and average
  // stay, which belong to it. The same on all ranks.
  bool take(std::size_t begin, std::size_t size) {
    const auto of_slice = [&](std::vector<float>& whole) { return std::span(whole).subspan(begin, size); };
    const auto values = bucket_.subspan(begin, size), mean = of_slice(differences_),
               average = of_slice(state_->velocity);
    const bool goes_on = !went_plain(begin);
    kernel::add(mean.data(), average.data(), mean.data(), size);
    if (goes_on) {
      std::ranges::copy(values, of_slice(state_->residual).begin());
      std::ranges::copy(mean, average.begin());
    }
    std::ranges::copy(mean, values.begin());
    return goes_on;
  }

  const std::shared_ptr<Residuals::State> state_, owed_;
  const std::span<float> bucket_;
  std::vector<float> differences_;
};

class DifferenceExchange final : public Exchange {
 public:
  DifferenceExchange(std::unique_ptr<Exchange> inner, Rank world)
      : inner_(std::move(inner)), last_(2, inner_->spec(), world), debt_(std::string(inner_->spec()), world) {}
  std::string_view spec() const override { return inner_->spec(); }
  std::uint64_t plain_buckets() const override { return inner_->plain_buckets(); }
  std::size_t state_bytes() const override { return inner_->state_bytes() + last_.bytes() + debt_.bytes(); }
  std::shared_ptr<Averaging> start(const Bucket& bucket) override {
    const auto state = last_.of(bucket);
    if (lacks_digits(*state)) estimate_by_average(*state, bucket);
    // Once: as a difference it would be added again at every step.
    auto averaging = std::make_shared<DifferenceAveraging>(state, debt_.give(bucket), bucket.values);
    // By what the bucket's tensors are known: the differences lie elsewhere at every step.
    averaging->start(*inner_, state->tensors, bucket.priority);
    return averaging;
  }
  // The residual comes first: to a codec of values it is what it says, something that is owed. Before all has been told
  // nothing else is kept.
  std::vector<std::byte> save(const Bucket& bucket) override {
    auto bytes = inner_->save(bucket);
    if (last_.of(bucket)->step == 0) return debt_.save(bucket, bytes);
    Residuals::append(bytes, last_.save(bucket, 0));
    return bytes;
  }
  // From a codec of values comes what it owed, and no last gradient: the first difference is the gradient itself. So it
  // is in another world, whose average is that of other estimates.
  void restore(const Bucket& bucket, ConstBytes kept) override {
    std::uint64_t ignored = 0;
    const ConstBytes more = last_.restore(bucket, kept, ignored);
    const auto state = last_.of(bucket);
    std::ranges::fill(state->residual, 0.0F);
    std::ranges::fill(state->velocity, 0.0F);
    state->step = 0;
    if (!last_.wrote(bucket, more)) return debt_.restore(bucket, kept);
    if (!last_.is_of_this_world(kept)) return;
    inner_->restore(bucket, kept);
    last_.restore(bucket, more, ignored);
  }

 private:
  void estimate_by_average(Residuals::State& state, const Bucket& bucket) {
    const Bucket known{.values = bucket.values, .tensors = state.tensors};
    auto kept = inner_->save(known);
    Residuals::owe_nothing(kept);
    inner_->restore(known, kept);
    state.residual = state.velocity;
    state.step = step_of(0);
  }

  const std::unique_ptr<Exchange> inner_;
  Residuals last_;
  Debt debt_;
};

}  // namespace

std::unique_ptr<Exchange> difference_exchange(std::unique_ptr<Exchange> inner, Rank world) {
  return std::make_unique<DifferenceExchange>(std::move(inner), world);
}

}  // namespace ranvier
