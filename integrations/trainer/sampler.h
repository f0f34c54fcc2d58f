// Which samples each worker sees, and when: a pure function of seed, epoch and place, so that a run can be resumed in
// the middle of an epoch from the number of its step alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ranvier::trainer {

// In an epoch of so many samples, where every one of `world` workers takes `batch` a step, but for the last one, which
// has what is left. Throws Error{config} if not even one step is full.
std::size_t steps_per_epoch(std::size_t samples, std::size_t batch, std::size_t world);

class Sampler {
 public:
  // As steps_per_epoch(), which throws: each sample once in an epoch.
  Sampler(std::size_t samples, std::size_t batch, std::size_t world, std::uint64_t seed);

  std::size_t steps_per_epoch() const { return steps_per_epoch_; }
  // Of all workers in `step`, counted from the start of training.
  std::size_t size(std::size_t step) const;
  // How many samples all workers have used before that.
  std::uint64_t before(std::size_t step) const;
  // How many steps of everybody's that makes, the last one perhaps in part.
  double steps(std::uint64_t samples) const;
  // Of all samples of `step`, size() of them, `count` from `first` on: shares may change from step to step without any
  // sample lost or seen twice. Valid until the next call.
  std::span<const std::int64_t> part(std::size_t step, std::size_t first, std::size_t count) {
    return from(before(step) + first, count);
  }
  // The same by their number since the start of training; they lie in one epoch.
  std::span<const std::int64_t> from(std::uint64_t sample, std::size_t count);

 private:
  void shuffle(std::size_t epoch);

  std::size_t step_;  // samples of a whole one
  std::uint64_t seed_;
  std::size_t steps_per_epoch_;
  std::size_t shuffled_for_ = 0;
  std::vector<std::int64_t> order_;
};

}  // namespace ranvier::trainer
