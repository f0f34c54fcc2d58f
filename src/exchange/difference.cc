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
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "exchange/coded_slice.h"
#include "exchange/residuals.h"
#include "kernel/vectors.h"
#include "ranvier/codec.h"

namespace ranvier {
namespace {

// Of a bucket what a codec of values has owed before, and what is not yet paid of it; none where all is.
using Owed = std::shared_ptr<std::vector<float>>;

// In a Residuals::State: `residual` the last gradients of this rank, `velocity` the last average.
class DifferenceAveraging final : public Averaging, public std::enable_shared_from_this<DifferenceAveraging> {
 public:
  // What is owed has been added to `bucket`.
  DifferenceAveraging(std::shared_ptr<Residuals::State> state, Owed owed, std::span<float> bucket)
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
    if (!inner_->error())
      for (std::size_t begin = 0; begin < bucket_.size(); begin += slice_values)
        take(begin, std::min(slice_values, bucket_.size() - begin));
    added_.store(true, std::memory_order_release);
  }

  // A slice in which the mean of differences has no code had none on some rank, and went plain on all: the inner
  // exchange holds back what it did before, and so the last gradient and average stay, which belong to it. Others go
  // on: also where they went plain, the difference was told in full. The same bits on all ranks, so all remember a
  // slice or none.
  void take(std::size_t begin, std::size_t size) {
    const auto of_slice = [&](std::vector<float>& whole) { return std::span(whole).subspan(begin, size); };
    const auto values = bucket_.subspan(begin, size), mean = of_slice(differences_),
               average = of_slice(state_->velocity);
    const bool goes_on = kernel::largest_magnitude(mean.data(), size) <= largest_codable;
    kernel::add(mean.data(), average.data(), mean.data(), size);
    if (goes_on) {
      std::ranges::copy(values, of_slice(state_->residual).begin());
      std::ranges::copy(mean, average.begin());
      if (owed_) std::ranges::fill(of_slice(*owed_), 0.0F);
    }
    std::ranges::copy(mean, values.begin());
  }

  const std::shared_ptr<Residuals::State> state_;
  const Owed owed_;
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
    const Owed owed = owed_of(*state);
    if (owed) kernel::add(bucket.values.data(), owed->data(), bucket.values.data(), bucket.values.size());
    // By what the bucket's tensors are known: the differences lie elsewhere at every step.
    auto averaging = std::make_shared<DifferenceAveraging>(state, owed, bucket.values);
    averaging->start(*inner_, state->tensors, bucket.priority);
    return averaging;
  }
  // The residual comes first: to a codec of values it is what it says, something that is owed.
  std::vector<std::byte> save(const Bucket& bucket) override {
    auto bytes = inner_->save(bucket);
    const auto last = last_.save(bucket, 0);
    bytes.insert(bytes.end(), last.begin(), last.end());
    if (const Owed owed = owed_of(*last_.of(bucket))) {
      const auto floats = std::as_bytes(std::span(*owed));
      bytes.insert(bytes.end(), floats.begin(), floats.end());
    }
    return bytes;
  }
  // From a codec of values comes what it owed, and no last gradient: the first difference is the gradient itself. So it
  // is in another world, whose average is that of other estimates.
  void restore(const Bucket& bucket, ConstBytes kept) override {
    std::uint64_t ignored = 0;
    const ConstBytes more = last_.restore(bucket, kept, ignored);
    const auto state = last_.of(bucket);
    std::vector<float> owed(state->residual);
    std::ranges::fill(state->residual, 0.0F);
    std::ranges::fill(state->velocity, 0.0F);
    const std::size_t of_last = last_.save(bucket, 0).size(), of_owed = owed.size() * sizeof(float);
    if (more.size() == of_last || more.size() == of_last + of_owed) {
      std::ranges::fill(owed, 0.0F);
      if (more.size() > of_last) std::memcpy(owed.data(), more.data() + of_last, of_owed);
      if (last_.is_of_this_world(kept)) {
        inner_->restore(bucket, kept);
        last_.restore(bucket, more, ignored);
      }
    }
    owed_[state->tensors.front().id] = std::make_shared<std::vector<float>>(std::move(owed));
  }

 private:
  Owed owed_of(const Residuals::State& state) {
    const auto found = owed_.find(state.tensors.front().id);
    if (found == owed_.end()) return nullptr;
    if (found->second->size() == state.residual.size() &&
        std::ranges::any_of(*found->second, [](float each) { return each != 0; }))
      return found->second;
    owed_.erase(found);
    return nullptr;
  }

  const std::unique_ptr<Exchange> inner_;
  Residuals last_;
  std::unordered_map<std::uint64_t, Owed> owed_;  // by a bucket's first tensor
};

}  // namespace

std::unique_ptr<Exchange> difference_exchange(std::unique_ptr<Exchange> inner, Rank world) {
  return std::make_unique<DifferenceExchange>(std::move(inner), world);
}

}  // namespace ranvier
