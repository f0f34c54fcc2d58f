// What benchmarks put into memory, and what must stand there afterwards: exactly, in every element type.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/job.h"
#include "ranvier/types.h"

namespace ranvier::bench {

// The values are small whole numbers, chosen so that sums and products in any order are exact even in bf16. They repeat
// after `period` elements, a prime: filling and checking run at memory speed, and no power of two lines up with it.
class Pattern {
 public:
  static constexpr std::size_t period = 8191;

  Pattern(const Job&, Rank world);

  // What `rank` gives: its elements first … first + count.
  void fill(Rank rank, std::size_t first, std::size_t count, void* to) const;
  // How many of those elements differ from what `rank` gave.
  std::uint64_t count_wrong(Rank rank, std::size_t first, std::size_t count, const void* found) const;
  // How many differ from the reduction of all ranks' elements. An average of floats may be off by one unit in the last
  // place, for it may be rounded at the division, at the reciprocal, or at both.
  std::uint64_t count_wrong_reduced(std::size_t first, std::size_t count, const void* found) const;
  // Of floats that should be that reduction: the norm of what they are off by, divided by the norm of what they should
  // be; of those that are numbers.
  double relative_error(std::size_t first, std::size_t count, const void* found) const;

 private:
  std::int64_t value(Rank rank, std::size_t index) const;
  std::int64_t reduced(std::size_t index) const;
  std::uint64_t count_no_numbers(std::size_t count, const void* found) const;

  Collective collective_;
  DType dtype_;
  ReduceOp op_;
  Fill fill_;
  std::uint64_t seed_;
  Rank world_;
};

// What outputs hold before a job: what an earlier one left must not pass for this one's result.
inline constexpr std::byte untouched{0xA5};

// Fills the input of `rank` for a job, and counts the wrong elements of its output.
void fill_input(const Job&, Rank rank, Rank world, void* input);
std::uint64_t count_wrong_output(const Job&, Rank rank, Rank world, const void* output);
// Of an all_reduce that is `Fill::centred`; 0 for all else, which is right or wrong.
double error_of_output(const Job&, Rank world, const void* output);

}  // namespace ranvier::bench
