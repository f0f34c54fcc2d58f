// The builders by name.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <limits>

#include "ranvier/error.h"
#include "ranvier/schedule.h"
#include "ranvier/text.h"
#include "schedule/spelling.h"
#include "schedule/steps.h"

namespace ranvier {
namespace {

constexpr std::size_t most_dims = 16;

template <Schedule (*build)(Collective, Rank, Rank)>
Schedule with_root(const ScheduleRequest& request) {
  return build(request.collective, request.world, request.root);
}

template <Schedule (*build)(Collective, Rank)>
Schedule without_root(const ScheduleRequest& request) {
  return build(request.collective, request.world);
}

template <Schedule (*build)(Collective, Rank, const std::vector<Rank>&)>
Schedule on_grid(const ScheduleRequest& request) {
  return build(request.collective, request.world, request.dims);
}

// "2x4x8" -> 2, 4, 8; empty for anything else.
std::vector<Rank> parse_dims(std::string_view text) {
  std::vector<Rank> dims;
  std::int64_t ranks = 1;
  for (const char *at = text.data(), *const end = at + text.size();;) {
    Rank size = 0;
    const auto [rest, problem] = std::from_chars(at, end, size);
    if (problem != std::errc{} || size < 1) return {};
    dims.push_back(size);
    ranks *= size;
    if (ranks > std::numeric_limits<Rank>::max() || dims.size() > most_dims) return {};
    if (rest == end) return dims;
    if (*rest != 'x') return {};
    at = rest + 1;
  }
}

// "1x0x1" -> true, false, true; empty for anything else.
std::vector<bool> parse_periods(std::string_view text) {
  std::vector<bool> periods;
  for (; !text.empty(); text.remove_prefix(std::min<std::size_t>(2, text.size()))) {
    const bool ends_well = text.size() == 1 || (text.size() > 2 && text[1] == 'x');
    if ((text[0] != '0' && text[0] != '1') || !ends_well) return {};
    periods.push_back(text[0] == '1');
  }
  return periods;
}

// "2x4,periods=1x0": the part from the comma on.
void take_periods(AlgorithmSpec& spec, std::string_view name, std::string_view text) {
  constexpr std::string_view key = ",periods=";
  spec.periodic = text.starts_with(key) ? parse_periods(text.substr(key.size())) : std::vector<bool>{};
  if (spec.periodic.size() != spec.dims.size())
    throw Error(ErrorKind::usage,
                fmt::format("algorithm '{}' takes a 1 behind its grid for each dimension whose ends are neighbours and "
                            "a 0 for each other one, not '{}'; write {}:2x4,periods=1x0",
                            name, text, name));
  if (std::ranges::count(spec.periodic, true) == 0) spec.periodic.clear();  // one way to say that borders are open
}

}  // namespace

std::span<const Algorithm> algorithms() {
  using enum Collective;
  static const std::array table{
      Algorithm{"ring",
                "neighbours only: the fewest bytes, for large vectors in any world",
                {all_reduce, reduce, broadcast, all_gather, reduce_scatter},
                true,
                Dims::none,
                &with_root<ring>},
      Algorithm{"halving_doubling",
                "butterfly: the fewest bytes in the fewest rounds, any world size",
                {all_reduce, reduce_scatter, all_gather},
                true,
                Dims::none,
                &without_root<halving_doubling>},
      Algorithm{"binomial_tree",
                "log2 rounds from or to a root",
                {all_reduce, reduce, broadcast, gather, scatter},
                true,
                Dims::none,
                &with_root<binomial_tree>},
      Algorithm{"direct",
                "every pair at once: the fewest rounds, for small worlds and uneven parts",
                {all_reduce, reduce, broadcast, all_gather, reduce_scatter, all_to_all, gather, scatter},
                true,
                Dims::none,
                &with_root<direct>},
      Algorithm{"one_round",
                "everybody's vector to everybody: the least latency, for tiny vectors",
                {all_reduce},
                true,
                Dims::none,
                [](const ScheduleRequest& request) {
                  steps::check("one_round", request.collective, {all_reduce}, request.world, request.root);
                  return one_round(request.world);
                }},
      Algorithm{"bidirectional_ring",
                "neighbours only, both ways at once: half the rounds of a ring, for links that carry both",
                {all_reduce, reduce_scatter, all_gather},
                true,
                Dims::none,
                &without_root<bidirectional_ring>},
      Algorithm{"recursive_doubling",
                "whole vectors between pairs: log2 rounds, for tiny vectors in any world",
                {all_reduce},
                true,
                Dims::none,
                &without_root<recursive_doubling>},
      Algorithm{"swing",
                "a butterfly of short ways: the fewest bytes in log2 rounds, for rings and tori",
                {all_reduce, reduce_scatter, all_gather},
                true,
                Dims::none,
                &without_root<swing>},
      Algorithm{"swing_latency",
                "recursive doubling over short ways, for tiny vectors on rings and tori",
                {all_reduce},
                true,
                Dims::none,
                &without_root<swing_latency>},
      Algorithm{"double_binary_tree",
                "two trees, each with half of the vector: log2 rounds and streaming, for large worlds",
                {all_reduce, reduce, broadcast},
                true,
                Dims::none,
                &with_root<double_binary_tree>},
      Algorithm{"bine_tree",
                "log2 rounds from or to a root, over shorter ways than a binomial tree's",
                {all_reduce, reduce, broadcast, gather, scatter},
                true,
                Dims::none,
                &with_root<bine_tree>},
      Algorithm{"multi_dimensional",
                "a grid of switches, all dimensions at once: few rounds, the fewest bytes",
                {all_reduce, reduce_scatter, all_gather},
                true,
                Dims::grid,
                &on_grid<multi_dimensional>},
      Algorithm{"torus",
                "rings along each dimension of a grid, both ways: neighbours only",
                {all_reduce, reduce_scatter, all_gather},
                true,
                Dims::grid,
                &on_grid<torus>},
      Algorithm{"mesh",
                "lines along each dimension of a grid: a torus without its closing links",
                {all_reduce, reduce_scatter, all_gather},
                true,
                Dims::grid,
                &on_grid<mesh>},
      Algorithm{"hierarchical",
                "inside nodes first, so that the fewest bytes cross between them",
                {all_reduce, reduce_scatter, all_gather},
                true,
                Dims::node,
                [](const ScheduleRequest& request) {
                  return hierarchical(request.collective, request.world, request.dims.empty() ? 0 : request.dims[0]);
                }},
      Algorithm{"round_robin",
                "every pair in turn, nobody with two partners at once",
                {all_reduce, reduce_scatter, all_gather, all_to_all},
                true,
                Dims::none,
                &without_root<round_robin>},
      Algorithm{"parameter_server",
                "all to one in turn, and back: for comparison",
                {all_reduce, reduce, broadcast, gather, scatter},
                true,
                Dims::none,
                &with_root<parameter_server>},
      Algorithm{"bruck",
                "what goes the same way goes together: log2 messages, for small parts in large worlds",
                {all_gather, all_to_all},
                false,
                Dims::none,
                &without_root<bruck>},
      Algorithm{"pat",
                "a tree for each part, farthest ranks first: log2 messages, short ways, for small parts",
                {all_gather, reduce_scatter},
                false,
                Dims::none,
                &without_root<pat>},
      Algorithm{
          "neighbor_exchange",
          "parts to and from the neighbours in a grid, open or periodic",
          {neighbor_exchange},
          true,
          Dims::periodic_grid,
          [](const ScheduleRequest& request) {
            steps::check("neighbor_exchange", request.collective, {neighbor_exchange}, request.world, request.root);
            return ranvier::neighbor_exchange(request.world, {.dims = request.dims, .periodic = request.periodic});
          }}};
  return table;
}

std::string one_spelling(std::string_view spec) {
  constexpr std::string_view other = "butterfly";
  const std::string_view name = spec.substr(0, spec.find(':'));
  return name == other ? fmt::format("halving_doubling{}", spec.substr(other.size())) : std::string(spec);
}

const Algorithm& find_algorithm(std::string_view word, Collective collective) {
  const std::string name = one_spelling(word);
  std::vector<std::string_view> names;
  std::vector<std::string_view> fitting;
  const Algorithm* found = nullptr;
  for (const Algorithm& algorithm : algorithms()) {
    names.push_back(algorithm.name);
    const auto& built = algorithm.collectives;
    if (std::find(built.begin(), built.end(), collective) != built.end()) fitting.push_back(algorithm.name);
    if (algorithm.name == name) found = &algorithm;
  }
  if (found == nullptr) throw Error(ErrorKind::usage, unknown_name("algorithm", name, names));
  if (std::find(fitting.begin(), fitting.end(), name) == fitting.end()) {
    std::vector<std::string_view> built;
    for (const Collective each : found->collectives) built.push_back(name_of(each));
    throw Error(ErrorKind::usage,
                fmt::format("algorithm '{}' does not build {}, only {}; {}{}", name, name_of(collective),
                            fmt::join(built, ", "),
                            fitting.empty() ? "none does: name none for it" : "these do: ", fmt::join(fitting, ", ")));
  }
  return *found;
}

AlgorithmSpec parse_algorithm(std::string_view word) {
  const std::string spelled = one_spelling(word);
  const std::string_view spec = spelled;
  const std::size_t colon = std::min(spec.find(':'), spec.size());
  const std::string_view name = spec.substr(0, colon);
  AlgorithmSpec parsed;
  std::vector<std::string_view> names;
  for (const Algorithm& algorithm : algorithms()) {
    names.push_back(algorithm.name);
    if (algorithm.name == name) break;
    ++parsed.index;
  }
  if (parsed.index == algorithms().size()) throw Error(ErrorKind::usage, unknown_name("algorithm", name, names));
  if (colon == spec.size()) return parsed;

  const std::string_view text = spec.substr(colon + 1);
  const Dims takes = parsed.algorithm().dims;
  if (takes == Dims::none)
    throw Error(ErrorKind::usage,
                fmt::format("algorithm '{0}' takes nothing behind its name, but has ':{1}'; write {0}", name, text));
  const std::size_t dims_end = takes == Dims::periodic_grid ? std::min(text.find(','), text.size()) : text.size();
  parsed.dims = parse_dims(text.substr(0, dims_end));
  if (parsed.dims.empty() || (takes == Dims::node && parsed.dims.size() != 1))
    throw Error(
        ErrorKind::usage,
        takes == Dims::node
            ? fmt::format("algorithm '{0}' takes how many ranks make a node, not '{1}'; write {0}:4", name, text)
            : fmt::format(
                  "algorithm '{0}' takes the sizes of a grid's dimensions, {2} at most, not '{1}'; write {0}:2x4", name,
                  text, most_dims));
  if (dims_end < text.size()) take_periods(parsed, name, text.substr(dims_end));
  return parsed;
}

}  // namespace ranvier
