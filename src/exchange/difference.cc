// EF21: codes of what has changed since the last step. Every rank has an estimate h of its gradient that all others
// know by its codes; it sends a code c of g - h, and h becomes h + c. What everybody applies is the mean of the
// estimates. Where gradients settle, changes become small, and so does what a contractive code of them loses.
// Richtarik, Sokolov and Fatkhullin, "EF21: A New, Simpler, Theoretically Better, and Practically Faster Error
// Feedback", NeurIPS 2021 (arXiv:2106.05203).
//
// Nothing but error feedback is needed for it: its residual after a step is g - h, so of the difference to the last
// gradient, g' - g, it codes g' - g + residual = g' - h. So this hands differences to an exchange that feeds back, and
// adds up what comes out. Whatever that exchange does (an owner's own residual, plain buckets) stays right.
#include "exchange/difference.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "exchange/residuals.h"
#include "kernel/vectors.h"

namespace ranvier {
namespace {

// In a Residuals::State: `residual` the last gradients of this rank, `velocity` the last average; before the first step
// `residual` what a codec of values owed, which the bucket has been given by then.
class DifferenceAveraging final : public Averaging, public std::enable_shared_from_this<DifferenceAveraging> {
 public:
  DifferenceAveraging(std::shared_ptr<Residuals::State> state, std::vector<float> owed, std::span<float> bucket)
      : state_(std::move(state)), owed_(std::move(owed)), bucket_(bucket), differences_(bucket.size()) {}

  void start(Exchange& exchange, std::span<const Tensor> tensors, int priority) {
    kernel::subtract(bucket_.data(), state_->residual.data(), differences_.data(), bucket_.size());
    inner_ = exchange.start({.values = differences_, .tensors = tensors, .priority = priority});
    inner_->on_done([self = shared_from_this()] { self->add_up(); });
  }
  void wait() override {
    inner_->wait();
    add_up();
  }
  bool done() const override { return added_.load(std::memory_order_acquire); }
  std::exception_ptr error() const override { return done() ? inner_->error() : nullptr; }
  void on_done(std::function<void()> then) override {
    inner_->on_done([self = shared_from_this(), then = std::move(then)] {
      self->add_up();
      then();
    });
  }

 private:
  // Once, by whoever comes first; others wait for it.
  void add_up() {
    const std::lock_guard lock(mutex_);
    if (done()) return;
    if (!inner_->error()) {
      const std::size_t count = bucket_.size();
      kernel::add(differences_.data(), state_->velocity.data(), differences_.data(), count);
      // The same bits on all ranks, so all remember this step or none. What is not finite reached everybody plain and
      // is not to be subtracted from the next gradient.
      if (kernel::all_finite(std::span(differences_).first(count))) {
        std::ranges::copy(bucket_, state_->residual.begin());
        std::ranges::copy(differences_, state_->velocity.begin());
      } else if (!owed_.empty()) {  // no step will be taken by it
        std::ranges::copy(owed_, state_->residual.begin());
        state_->step = 0;
      }
      std::ranges::copy(differences_, bucket_.begin());
    }
    added_.store(true, std::memory_order_release);
  }

  const std::shared_ptr<Residuals::State> state_;
  const std::vector<float> owed_;  // of the first step
  const std::span<float> bucket_;
  std::vector<float> differences_;
  std::shared_ptr<Averaging> inner_;
  std::mutex mutex_;
  std::atomic<bool> added_ = false;
};

class DifferenceExchange final : public Exchange {
 public:
  DifferenceExchange(std::unique_ptr<Exchange> inner, Rank world)
      : inner_(std::move(inner)), last_(2, inner_->spec(), world) {}
  std::string_view spec() const override { return inner_->spec(); }
  std::uint64_t plain_buckets() const override { return inner_->plain_buckets(); }
  std::size_t state_bytes() const override { return inner_->state_bytes() + last_.bytes(); }
  std::shared_ptr<Averaging> start(const Bucket& bucket) override {
    const auto state = last_.of(bucket);
    std::vector<float> owed;
    if (state->step++ == 0) {  // as a difference it would be added again at every step
      owed.assign(state->residual.begin(), state->residual.end());
      kernel::add(bucket.values.data(), state->residual.data(), bucket.values.data(), bucket.values.size());
      std::ranges::fill(state->residual, 0.0F);
    }
    // By what the bucket's tensors are known: the differences lie elsewhere at every step.
    auto averaging = std::make_shared<DifferenceAveraging>(state, std::move(owed), bucket.values);
    averaging->start(*inner_, state->tensors, bucket.priority);
    return averaging;
  }
  // The residual comes first: to a codec of values it is what it says, something that is owed.
  std::vector<std::byte> save(const Bucket& bucket) override {
    auto bytes = last_.save(bucket, 0);
    const auto owed = inner_->save(bucket);
    bytes.insert(bytes.begin(), owed.begin(), owed.end());
    return bytes;
  }
  // From a codec of values comes what it owed, and no last gradient: the first difference is the gradient itself. So it
  // is in another world, whose average is that of other estimates.
  void restore(const Bucket& bucket, ConstBytes kept) override {
    std::uint64_t ignored = 0;
    const ConstBytes more = last_.restore(bucket, kept, ignored);
    const auto state = last_.of(bucket);
    std::ranges::fill(state->velocity, 0.0F);
    state->step = 0;
    if (more.size() != last_.save(bucket, 0).size()) return;
    std::ranges::fill(state->residual, 0.0F);
    if (!last_.is_of_this_world(kept)) return;
    inner_->restore(bucket, kept);
    last_.restore(bucket, more, ignored);
  }

 private:
  const std::unique_ptr<Exchange> inner_;
  Residuals last_;
};

}  // namespace

std::unique_ptr<Exchange> difference_exchange(std::unique_ptr<Exchange> inner, Rank world) {
  return std::make_unique<DifferenceExchange>(std::move(inner), world);
}

}  // namespace ranvier
