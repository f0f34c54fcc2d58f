// What one sample of a benchmark runs: a collective on memory of a given shape, so many times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/request.h"
#include "ranvier/schedule.h"
#include "ranvier/types.h"

namespace ranvier::bench {

// What the memory holds before a sample. `varied` gives every rank and element its own value. Repeating a sum in place
// would make those overflow, so such samples run on zeros, or on ones for a product: values that the operation keeps.
// `alike`: the ranks give the same, so that a sum that tolerates loss has a right result whatever was lost. `centred`:
// varied f32 or f64 with a mean of zero, as gradients have, whose sum may lack some: it has an error, and nothing but
// what is no number is wrong.
enum class Fill : std::uint8_t { varied, zeros, ones, alike, centred };

struct Job {
  // Collective::send stands for sendrecv: every rank sends to the next one and receives from the one before it.
  Collective collective = Collective::all_reduce;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  std::size_t count = 0;  // elements: the longer one of input and output of the root; see shape_of
  bool in_place = false;
  std::uint64_t warmups = 0;
  std::uint64_t iterations = 1;
  Fill fill = Fill::varied;
  std::uint64_t seed = 0;
  Rank root = 0;               // of collectives that have one
  std::string algorithm = {};  // empty: what the world was started with; of neighbor_exchange, with its grid

  friend bool operator==(const Job&, const Job&) = default;
};

inline constexpr Rank first_rank = 0;  // of a world that measures: it speaks for all

// What can be timed, by the names that flags take: all collectives, and "sendrecv".
std::span<const std::string_view> job_names();
std::string_view job_name(Collective);
bool reduces(Collective);
using engine::has_root;

// As many elements as fit into `bytes` and make equal parts, of every rank or of every neighbour; at least one each. Of
// the job its collective, type and algorithm are used.
std::size_t job_count(const Job&, std::size_t bytes, Rank world);
// Of neighbor_exchange: the grid that the job's algorithm names, a line where it names none. Throws Error{usage} for
// dimensions that do not multiply to the world.
CartesianGrid grid_of(const Job&, Rank world);
// `Fill::varied`, but for what would overflow when repeated.
Fill steady_fill(const Job&);

// Where input and output lie, in elements. In place they overlap as MPI_IN_PLACE has it: the input of all_gather is
// its own part of the output, and so on.
struct Shape {
  std::size_t input = 0;
  std::size_t output = 0;
  std::size_t input_at = 0;  // offsets into the one buffer of an in-place call, of `buffer` elements
  std::size_t output_at = 0;
  std::size_t buffer = 0;
};
Shape shape_of(const Job&, Rank, Rank world);

// busbw / algbw: how often the busiest link carries each byte of the result.
// https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
double bus_factor(Collective, Rank world);

// One line of words, for the pipe between processes.
std::string to_line(const Job&);
// Throws Error{mismatch} for a line that to_line has not made.
Job job_from_line(std::string_view);

}  // namespace ranvier::bench
