#include "bench/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/split.h"
#include "ranvier/error.h"
#include "ranvier/text.h"

namespace ranvier::bench {
namespace {

constexpr std::string_view sendrecv = "sendrecv";

constexpr std::array<std::string_view, 5> fill_names{"varied", "zeros", "ones", "alike", "centred"};

// Every rank has an equal part of the longest buffer.
bool is_split(Collective collective) {
  switch (collective) {
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
    case Collective::gather:
    case Collective::scatter:
      return true;
    default:
      return false;
  }
}

[[noreturn]] void refuse(std::string_view line) {
  throw Error(ErrorKind::mismatch, fmt::format("'{}' is not a job; do both sides come from one build?", line));
}

}  // namespace

std::span<const std::string_view> job_names() {
  static constexpr std::array<std::string_view, 11> names{"all_reduce",        "reduce",     "broadcast", "all_gather",
                                                          "reduce_scatter",    "all_to_all", "gather",    "scatter",
                                                          "neighbor_exchange", "barrier",    sendrecv};
  return names;
}

std::string_view job_name(Collective collective) {
  return collective == Collective::send ? sendrecv : name_of(collective);
}

bool reduces(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce ||
         collective == Collective::reduce_scatter;
}

CartesianGrid grid_of(const Job& job, Rank world) {
  const AlgorithmSpec spec = parse_algorithm(job.algorithm.empty() ? "neighbor_exchange" : job.algorithm);
  return neighbor_exchange(world, {.dims = spec.dims, .periodic = spec.periodic}).grid;
}

std::size_t job_count(const Job& job, std::size_t bytes, Rank world) {
  if (job.collective == Collective::barrier) return 0;
  const std::size_t count = std::max<std::size_t>(bytes / size_of(job.dtype), 1);
  std::size_t parts = 1;
  if (is_split(job.collective)) parts = static_cast<std::size_t>(world);
  if (job.collective == Collective::neighbor_exchange) parts = 2 * grid_of(job, world).dims.size();
  return std::max<std::size_t>(count / parts, 1) * parts;
}

Fill steady_fill(const Job& job) {
  if (!job.in_place || !reduces(job.collective)) return Fill::varied;
  switch (job.op) {
    case ReduceOp::sum:
    case ReduceOp::average:  // would be rounded again and again
    case ReduceOp::bit_xor:
      return Fill::zeros;
    case ReduceOp::product:
      return Fill::ones;
    default:  // the minimum of minima is the minimum
      return Fill::varied;
  }
}

Shape shape_of(const Job& job, Rank rank, Rank world) {
  const std::size_t all = job.count;
  const std::size_t part = all / static_cast<std::size_t>(world);
  const std::size_t mine = part * static_cast<std::size_t>(rank);
  const bool is_root = rank == job.root;
  switch (job.collective) {
    case Collective::all_reduce:
    case Collective::all_to_all:
    case Collective::neighbor_exchange:
    case Collective::send:
      return {all, all, 0, 0, all};
    case Collective::reduce:
      return {all, is_root ? all : 0, 0, 0, all};
    case Collective::broadcast:
      return {is_root ? all : 0, all, 0, 0, all};
    case Collective::all_gather:
      return {part, all, mine, 0, all};
    case Collective::reduce_scatter:
      return {all, part, 0, mine, all};
    case Collective::gather:
      return is_root ? Shape{part, all, mine, 0, all} : Shape{part, 0, 0, 0, part};
    case Collective::scatter:
      return is_root ? Shape{all, part, 0, mine, all} : Shape{0, part, 0, 0, part};
    case Collective::barrier:
    case Collective::recv:
      break;
  }
  return {};
}

double bus_factor(Collective collective, Rank world) {
  const double ranks = world;
  if (collective == Collective::all_reduce) return 2 * (ranks - 1) / ranks;
  return is_split(collective) ? (ranks - 1) / ranks : 1;
}

std::string to_line(const Job& job) {
  return fmt::format("run {} {} {} {} {} {} {} {} {} {}{}{}", job_name(job.collective), name_of(job.dtype),
                     name_of(job.op), job.count, job.in_place ? "in_place" : "out_of_place", job.warmups,
                     job.iterations, fill_names[static_cast<std::size_t>(job.fill)], job.seed, job.root,
                     job.algorithm.empty() ? "" : " ", job.algorithm);
}

Job job_from_line(std::string_view line) {
  const auto words = split(line, ' ');
  if (words.size() < 11 || words.size() > 12 || words[0] != "run") refuse(line);
  const auto number = [&](std::string_view word) {
    const auto value = parse_number<std::uint64_t>(word);
    if (!value) refuse(line);
    return *value;
  };
  Job job;
  const auto collective = words[1] == sendrecv ? Collective::send : parse_collective(words[1]);
  const auto dtype = parse_dtype(words[2]);
  const auto op = parse_reduce_op(words[3]);
  const auto fill = std::find(fill_names.begin(), fill_names.end(), words[8]);
  if (!collective || !dtype || !op || fill == fill_names.end()) refuse(line);
  job.collective = *collective;
  job.dtype = *dtype;
  job.op = *op;
  job.count = number(words[4]);
  job.in_place = words[5] == "in_place";
  job.warmups = number(words[6]);
  job.iterations = number(words[7]);
  job.fill = static_cast<Fill>(fill - fill_names.begin());
  job.seed = number(words[9]);
  const auto root = parse_number<Rank>(words[10]);
  if (!root || *root < 0) refuse(line);
  job.root = *root;
  if (words.size() > 11) job.algorithm = words[11];
  return job;
}

}  // namespace ranvier::bench
