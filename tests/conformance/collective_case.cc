#include "conformance/collective_case.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "ranvier/error.h"
#include "ranvier/schedule.h"

namespace ranvier::conformance {
namespace {

constexpr std::size_t border = 64;
constexpr std::byte border_byte{0xa5};
constexpr std::byte unwritten_byte{0x5a};

bool gathers(Collective collective) { return collective == Collective::all_gather || collective == Collective::gather; }
bool scatters(Collective collective) {
  return collective == Collective::reduce_scatter || collective == Collective::scatter;
}

}  // namespace

std::string describe(const Case& c) {
  return fmt::format("{} by {}: {} x {}, {}, root {}{}{}, misaligned by {}, salt {}{}", name_of(c.collective),
                     c.algorithm, c.count, name_of(c.dtype), name_of(c.op), c.root, c.in_place ? ", in place" : "",
                     c.uneven ? ", uneven parts" : "", c.misalign, c.salt, c.allocated ? ", in allocated memory" : "");
}

CaseRun::CaseRun(const Case& c, Communicator& comm) : case_(c), rank_(comm.rank()), world_(comm.world()) {
  const std::size_t width = size_of(c.dtype);
  const Values values = input_of(rank_);
  const std::size_t input_bytes = values.size() * width;
  if (has_output()) expected_ = expected();
  output_bytes_ = expected_.size() * width;

  if (c.in_place && has_output() && input_bytes > 0 && output_bytes_ > 0) {
    if (gathers(c.collective)) input_offset_ = parts_before(rank_, 0) * width;
    if (scatters(c.collective)) output_offset_ = parts_before(rank_, 0) * width;
    output_ = make_memory(comm, std::max(input_bytes, output_bytes_));
    std::ranges::copy(encode(c.dtype, values), output_.inside().begin() + static_cast<std::ptrdiff_t>(input_offset_));
    request_.input = {output_.inside().data() + input_offset_, values.size(), c.dtype};
  } else {
    input_ = make_memory(comm, input_bytes);
    output_ = make_memory(comm, output_bytes_);
    std::ranges::copy(encode(c.dtype, values), input_.inside().begin());
    request_.input = {input_.inside().data(), values.size(), c.dtype};
  }
  if (has_output())
    request_.output = {output_.inside().data() + output_offset_, output_bytes_ / width, c.dtype};
  else
    request_.output = {nullptr, 0, c.dtype};
  before_input_.assign(input_.all().begin(), input_.all().end());
  before_output_.assign(output_.all().begin(), output_.all().end());

  for (Rank peer = 0; c.uneven && peer < world_; ++peer) {
    if (gathers(c.collective)) output_splits_.push_back(part(peer, 0));
    if (scatters(c.collective)) input_splits_.push_back(part(peer, 0));
    if (c.collective == Collective::all_to_all) {
      input_splits_.push_back(part(rank_, peer));
      output_splits_.push_back(part(peer, rank_));
    }
  }
  request_.collective = c.collective;
  request_.op = c.op;
  request_.root = c.root;
  request_.input_splits = input_splits_;
  request_.output_splits = output_splits_;
  request_.algorithm = case_.algorithm;
}

CaseRun::Guarded CaseRun::make_memory(Communicator& comm, std::size_t size) const {
  Guarded memory;
  memory.begin = border + case_.misalign;
  memory.size = size;
  memory.total = memory.begin + size + border;
  memory.bytes = case_.allocated ? comm.allocate(memory.total) : std::make_shared<std::byte[]>(memory.total);
  std::fill_n(memory.bytes.get(), memory.total, border_byte);
  std::ranges::fill(memory.inside(), unwritten_byte);
  return memory;
}

// Elements that go from one rank to another. What all ranks send or receive alike depends on `from` alone.
std::size_t CaseRun::part(Rank from, Rank to) const {
  if (!case_.uneven) return case_.count;
  return case_.count * static_cast<std::size_t>((from * 3 + to * 5 + 1) % 4) / 2;
}

std::size_t CaseRun::parts_before(Rank end, Rank to) const {
  std::size_t sum = 0;
  for (Rank rank = 0; rank < end; ++rank) sum += part(rank, to);
  return sum;
}

Values CaseRun::input_of(Rank rank) const {
  std::size_t count = case_.count;
  const bool root_only = case_.collective == Collective::broadcast || case_.collective == Collective::scatter;
  if (root_only && rank != case_.root) count = 0;
  if (gathers(case_.collective)) count = part(rank, 0);
  if (scatters(case_.collective) && !(root_only && rank != case_.root)) count = parts_before(world_, 0);
  if (case_.collective == Collective::all_to_all) {
    count = 0;
    for (Rank to = 0; to < world_; ++to) count += part(rank, to);
  }
  return values_of(case_.dtype, case_.op, rank, 0, count, case_.salt);
}

Values CaseRun::reduced(std::size_t begin, std::size_t count) const {
  Values result = values_of(case_.dtype, case_.op, 0, begin, count, case_.salt);
  for (Rank rank = 1; rank < world_; ++rank)
    combine(case_.op, case_.dtype, result, values_of(case_.dtype, case_.op, rank, begin, count, case_.salt));
  if (case_.op == ReduceOp::average)
    for (double& value : result) value = average_of(case_.dtype, value, world_);
  return result;
}

bool CaseRun::has_output() const {
  return is_root() || (case_.collective != Collective::reduce && case_.collective != Collective::gather);
}

Values CaseRun::expected() const {
  switch (case_.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      return reduced(0, case_.count);
    case Collective::broadcast:
      return input_of(case_.root);
    case Collective::reduce_scatter:
      return reduced(parts_before(rank_, 0), part(rank_, 0));
    case Collective::scatter: {
      const Values all = input_of(case_.root);
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(parts_before(rank_, 0));
      return {begin, begin + static_cast<std::ptrdiff_t>(part(rank_, 0))};
    }
    default:
      break;
  }
  Values result;
  for (Rank from = 0; from < world_; ++from) {
    const Values theirs = input_of(from);
    auto begin = theirs.begin();
    auto end = theirs.end();
    if (case_.collective == Collective::all_to_all) {
      for (Rank to = 0; to < rank_; ++to) begin += static_cast<std::ptrdiff_t>(part(from, to));
      end = begin + static_cast<std::ptrdiff_t>(part(from, rank_));
    }
    result.insert(result.end(), begin, end);
  }
  return result;
}

void CaseRun::check() const {
  check_unchanged(input_, before_input_, 0, 0, "changed its input, or memory beside it");
  if (has_output()) check_values();
  check_unchanged(output_, before_output_, output_offset_, output_bytes_, "wrote beside its output");
}

void CaseRun::check_unused() const {
  std::size_t own = 0;
  std::size_t own_bytes = 0;
  const bool sends_all = case_.collective == Collective::broadcast || case_.collective == Collective::scatter;
  if (sends_all && is_root()) {
    own_bytes = output_bytes_;
  } else if (gathers(case_.collective) || case_.collective == Collective::all_to_all) {
    const std::size_t width = size_of(case_.dtype);
    const Rank to = gathers(case_.collective) ? 0 : rank_;
    for (Rank from = 0; from < rank_; ++from) own += part(from, to) * width;
    own_bytes = part(rank_, to) * width;
  }
  check_unchanged(input_, before_input_, 0, 0, "changed its input, or memory beside it");
  check_unchanged(output_, before_output_, output_offset_ + own, own_bytes, "used data that it should have refused");
}

// All but [begin, begin + size) of the memory is as it was.
void CaseRun::check_unchanged(const Guarded& now, const std::vector<std::byte>& before, std::size_t begin,
                              std::size_t size, const char* problem) const {
  begin += now.begin;
  const std::byte* const bytes = now.bytes.get();
  const auto is_same = [&](std::size_t from, std::size_t to) {
    return from >= to || std::memcmp(bytes + from, before.data() + from, to - from) == 0;
  };
  if (is_same(0, std::min(begin, before.size())) && is_same(begin + size, before.size())) return;
  for (std::size_t i = 0; i < before.size(); ++i)
    ASSERT_TRUE(bytes[i] == before[i] || (i >= begin && i < begin + size))
        << where() << ' ' << problem << ": byte " << static_cast<std::ptrdiff_t>(i - now.begin) << " changed";
}

void CaseRun::check_values() const {
  const Values got = decode(case_.dtype, output_.inside().subspan(output_offset_, output_bytes_));
  const double tolerance = case_.op == ReduceOp::average ? tolerance_of(case_.dtype) : 0;
  ASSERT_EQ(got.size(), expected_.size()) << where();
  const auto is_near = [&](double one, double other) { return std::fabs(one - other) <= tolerance * std::fabs(other); };
  const auto [wrong, right] = std::ranges::mismatch(got, expected_, is_near);
  ASSERT_EQ(wrong, got.end()) << where() << ": element " << wrong - got.begin() << " is " << *wrong << ", must be "
                              << *right;
}

std::string CaseRun::where() const { return fmt::format("rank {} of {}, {}", rank_, world_, describe(case_)); }

void run_case(Communicator& comm, const Case& c) {
  const CaseRun run(c, comm);
  comm.run(run.request());
  run.check();
  // Leaving in silence would let the others wait for this rank until their deadlines.
  if (testing::Test::HasFailure()) throw std::runtime_error("stopped at the first failure");
}

std::vector<std::string> algorithms_for(Collective collective, Rank world) {
  std::vector<std::string> names;
  for (const Algorithm& algorithm : algorithms()) {
    if (std::ranges::find(algorithm.collectives, collective) == algorithm.collectives.end()) continue;
    try {
      algorithm.build({.collective = collective, .world = world});
      names.emplace_back(algorithm.name);
    } catch (const Error&) {
      // A world that it cannot serve.
    }
  }
  return names;
}

}  // namespace ranvier::conformance
