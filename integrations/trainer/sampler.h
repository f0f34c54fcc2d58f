// Which samples each worker sees, and when: a pure function of seed, epoch and place, so that a run can be resumed in
// the middle of an epoch from the number of its step alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ranvier::trainer {

// In an epoch of so many samples, where every one of `world` workers takes `batch` a step. Throws Error{config} if not
// even one step is full.
std::size_t steps_per_epoch(std::size_t samples, std::size_t batch, std::size_t world);

class Sampler {
 public:
  // Of `samples`, every one of `world` workers takes `batch` a step; what does not fill a step is left out of the
  // epoch, another rest each time. Throws as steps_per_epoch().
  Sampler(std::size_t samples, std::size_t batch, std::size_t world, std::uint64_t seed);

  std::size_t steps_per_epoch() const { return steps_per_epoch_; }
  // The samples of worker `rank` in `step`, counted from the start of training. Valid until the next call.
  std::span<const std::int64_t> batch(std::size_t step, std::size_t rank);
  // Of all samples of `step`, world * batch of them, `count` from `first` on: for workers with shares of other sizes,
  // which may change from step to step without any sample lost or seen twice.
  // The same by their number since the start of training; they lie in one epoch.
  std::span<const std::int64_t> from(std::size_t sample, std::size_t count) {
    return part(sample / (world_ * batch_), sample % (world_ * batch_), count);
  }
  std::span<const std::int64_t> part(std::size_t step, std::size_t first, std::size_t count);

 private:
  void shuffle(std::size_t epoch);

  std::size_t batch_;
  std::size_t world_;
  std::uint64_t seed_;
  std::size_t steps_per_epoch_;
  std::size_t shuffled_for_ = 0;
  std::vector<std::int64_t> order_;
};

}  // namespace ranvier::trainer
