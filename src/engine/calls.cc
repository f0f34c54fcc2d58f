#include "engine/calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <span>
#include <utility>

#include "engine/request.h"
#include "ranvier/error.h"

namespace ranvier::engine {
namespace {

bool builds(const Algorithm& algorithm, Collective collective) {
  return std::ranges::count(algorithm.collectives, collective) > 0;
}

// Parts of different sizes have different shapes, and nothing has any. Of an exchange each rank knows the sizes of its
// own, and may have even ones where another has not: there the caller says whether there is a shape.
bool has_shape(const Request& request, const Shape& shape) {
  if (request.collective == Collective::all_to_all) return true;
  return RequestKey::even(request) && request.collective != Collective::neighbor_exchange && shape.count > 0;
}

// The elements of every rank's part, which all ranks know or none. Of an exchange each knows its own parts alone.
std::span<const std::size_t> splits_of(const Request& request) {
  switch (request.collective) {
    case Collective::gather:
    case Collective::all_gather:
      return request.output_splits;
    case Collective::scatter:
    case Collective::reduce_scatter:
      return request.input_splits;
    default:
      return {};
  }
}

// All parts together, as far as a rank knows them.
std::size_t bytes_of(const Request& request, const Shape& shape, Rank world) {
  const auto& splits = request.output_splits.empty() ? request.input_splits : request.output_splits;
  const std::size_t parts = has_common_count(request.collective) ? 1 : static_cast<std::size_t>(world);
  const std::size_t elements =
      splits.empty() ? shape.count * parts : std::accumulate(splits.begin(), splits.end(), std::size_t{0});
  return elements * shape.element_bytes;
}

// A rank sees the sizes of the parts that it sends and receives, and no rank that another pair of them disagrees. Inner
// ranks of a tree pass on parts of others, too.
std::uint16_t hash_of(std::span<const std::size_t> splits) {
  std::uint64_t hash = 0;
  for (const std::size_t elements : splits) hash = (hash ^ elements) * 0x9E3779B97F4A7C15u;
  return splits.empty() ? 0 : static_cast<std::uint16_t>(1 + (hash >> 48) % 0xFFFF);
}

constexpr std::string_view other_algorithm =
    "name an algorithm that keeps to neighbours, leave the choice to auto, or leave out the topology";

// A barrier is an all_reduce of one byte: it ends when every rank has contributed.
Collective built_as(Collective collective) {
  return collective == Collective::barrier ? Collective::all_reduce : collective;
}

}  // namespace

AlgorithmNumbers::Number AlgorithmNumbers::of(std::string_view name) {
  if (name.empty()) return unnamed;
  if (name == TuningRow::automatic || name == "vendor") return automatic;  // "vendor" comes here in worlds of one only
  {
    const std::lock_guard lock(lock_);
    const auto found = std::ranges::find(named_, name, &Named::name);
    if (found != named_.end()) return static_cast<Number>(first + (found - named_.begin()));
  }
  Named fresh{std::string(name), parse_algorithm(name)};
  const Algorithm& algorithm = fresh.spec.algorithm();
  if (algorithm.dims == Dims::node && fresh.spec.dims.empty() && ranks_per_node_ > 0)
    fresh.spec.dims = {ranks_per_node_};
  algorithm.build({.collective = algorithm.collectives.front(),
                   .world = world_,
                   .dims = fresh.spec.dims,
                   .periodic = fresh.spec.periodic});
  const std::lock_guard lock(lock_);
  named_.push_back(std::move(fresh));
  return static_cast<Number>(first + named_.size() - 1);
}

const AlgorithmSpec& AlgorithmNumbers::operator[](Number number) {
  const std::lock_guard lock(lock_);
  return named_[static_cast<std::size_t>(number - first)].spec;
}

Calls::Calls(CallSettings settings)
    : settings_(std::move(settings)),
      algorithms_(settings_.world, settings_.ranks_per_node),
      programs_(settings_.rank, settings_.world,
                {.slice_bytes = settings_.slice_bytes,
                 .buffered_bytes = settings_.buffered_bytes,
                 .unanswered = settings_.answers == nullptr ? 0 : settings_.answers->unanswered(),
                 .ahead_bytes = settings_.ahead_bytes,
                 .lead_bytes = settings_.lead_bytes}),
      selection_(std::make_shared<Selection>(SelectionSettings{.world = settings_.world,
                                                               .ranks_per_node = settings_.ranks_per_node,
                                                               .on_one_host = settings_.on_one_host,
                                                               .transport = settings_.transport,
                                                               .links = settings_.links,
                                                               .slice_bytes = settings_.slice_bytes,
                                                               .topology = settings_.topology,
                                                               .trials = settings_.trials})) {
  const auto own = algorithms_.of(settings_.algorithm);
  if (own > AlgorithmNumbers::automatic) own_ = algorithms_[own];
}

RequestKey::RequestKey(const Request& request, AlgorithmNumbers::Number algorithm)
    : input_count_(request.input.count),
      output_count_(request.output.count),
      root_(request.root),
      priority_(request.priority),
      algorithm_(algorithm),
      collective_(request.collective),
      op_(request.op),
      input_type_(request.input.dtype),
      output_type_(request.output.dtype),
      label_(request.label),
      part_of_(request.part_of) {
  const auto from = reinterpret_cast<std::uintptr_t>(request.input.data);
  const auto to = reinterpret_cast<std::uintptr_t>(request.output.data);
  distance_ = overlap(request.input, request.output) ? static_cast<std::ptrdiff_t>(from - to) : apart;
}

std::size_t RequestKey::hash() const {
  std::size_t hash = input_count_ * 31 + output_count_;
  for (const std::size_t each :
       {static_cast<std::size_t>(collective_), static_cast<std::size_t>(algorithm_), static_cast<std::size_t>(op_),
        static_cast<std::size_t>(output_type_), static_cast<std::size_t>(root_), static_cast<std::size_t>(priority_),
        static_cast<std::size_t>(distance_), static_cast<std::size_t>(label_.shape)})
    hash = (hash ^ each) * 0x9E3779B97F4A7C15u;
  return hash;
}

CollectiveCall Calls::prepare(const Request& request) {
  const RequestKey key = key_of(request);
  auto& places = recent_[key.hash() >> 60];
  {
    const std::lock_guard lock(lock_);
    for (const Entry& each : places)
      if (each.is_for(key, request)) return each.call;
  }
  Entry entry{.key = key,
              .input_splits = {request.input_splits.begin(), request.input_splits.end()},
              .output_splits = {request.output_splits.begin(), request.output_splits.end()},
              .call = make(request)};
  CollectiveCall call = entry.call;
  const std::lock_guard lock(lock_);
  std::rotate(places.begin(), places.end() - 1, places.end());  // clang 14 knows no std::ranges::rotate
  std::swap(places.front(), entry);
  return call;
}

// The communicator's own choice is for what it can build; a request's is an order.
AlgorithmSpec Calls::choose(const Request& request, const Shape& shape) {
  const bool uneven = !RequestKey::even(request);
  const auto number = algorithms_.of(request.algorithm);
  if (number > AlgorithmNumbers::automatic) {
    const AlgorithmSpec& named = algorithms_[number];
    const Algorithm& algorithm = find_algorithm(named.algorithm().name, shape.collective);
    if (uneven && !algorithm.uneven)
      throw Error(ErrorKind::usage,
                  fmt::format("{} with uneven splits cannot run as {}, which needs parts of one size; use direct",
                              name_of(request.collective), algorithm.name));
    demand_links(named, shape, other_algorithm);
    return named;
  }
  if (number == AlgorithmNumbers::unnamed && own_ && builds(own_->algorithm(), shape.collective) &&
      (own_->algorithm().uneven || !uneven)) {
    demand_links(*own_, shape, other_algorithm);
    return *own_;
  }
  if (shape.collective == Collective::neighbor_exchange) {  // in a line
    demand_links(parse_algorithm("neighbor_exchange"), shape, other_algorithm);
    return parse_algorithm("neighbor_exchange");
  }
  const std::size_t bytes = bytes_of(request, shape, settings_.world);
  if (uneven && !has_root(shape.collective))
    return parse_algorithm(selection_->choice_for_uneven(shape.collective, bytes));
  const Rank root = has_root(shape.collective) ? shape.root : 0;
  if (auto tuned = settings_.tuning.find(shape.collective, settings_.transport, settings_.world, bytes)) {
    if (settings_.topology && selection_->keeps_to_links(shape.collective, root))
      demand_links(*tuned, shape, "make its row in the tuning table one of auto, or leave out the topology");
    return *tuned;
  }
  return parse_algorithm(selection_->choice(shape.collective, bytes, root));
}

// Whoever names a topology wants no rank to forward for others. What "auto" takes keeps to it wherever that can be.
void Calls::demand_links(const AlgorithmSpec& spec, const Shape& shape, std::string_view remedy) {
  if (!settings_.topology) return;
  const std::string name = fmt::format("{} by {}", name_of(shape.collective), spec_text(spec));
  const std::pair key(name, shape.root);
  const std::lock_guard lock(links_mutex_);
  if (on_links_.contains(key)) return;
  const Schedule schedule = spec.algorithm().build({.collective = shape.collective,
                                                    .world = settings_.world,
                                                    .root = shape.root,
                                                    .dims = spec.dims,
                                                    .periodic = spec.periodic});
  if (const std::string missing = missing_link(schedule, *settings_.topology); !missing.empty())
    throw Error(ErrorKind::usage, fmt::format("{} needs a link that is not there: {}; {}", name, missing, remedy));
  on_links_.insert(key);
}

std::vector<TuningRow> Calls::rows(Collective collective) {
  // What the table leaves out is left to the model: sizes above its last row, and rows of "auto".
  std::vector<TuningRow> all = selection_->rows(collective);
  std::size_t from = 0;
  for (const TuningRow& row : settings_.tuning.rows()) {
    if (!same_kind(row, all.front())) continue;
    if (row.algorithm != TuningRow::automatic) all = overlaid(all, from, row);
    if (row.up_to == TuningRow::max) break;
    from = row.up_to + 1;
  }
  return all;
}

CollectiveCall Calls::make(const Request& request) {
  Shape shape = shape_of(request, settings_.rank, settings_.world, settings_.names);
  const bool barrier = request.collective == Collective::barrier;
  shape.collective = built_as(request.collective);
  const bool reducing = reduces(request.collective) && !barrier;
  const DType dtype = barrier ? DType::u8 : dtype_of(request);

  AlgorithmSpec chosen = choose(request, shape);
  shape.algorithm = static_cast<std::uint8_t>(chosen.index);
  shape.dims = std::move(chosen.dims);
  shape.periodic = std::move(chosen.periodic);
  if (shape.collective == Collective::neighbor_exchange)
    share_among_directions(shape, request, settings_.rank, settings_.names);

  CollectiveCall call;
  if (barrier) call.reduce = kernel::reduce_function(ReduceOp::max, dtype);
  if (reducing) call.reduce = kernel::reduce_function(request.op, dtype);
  const ReadyProgram ready = programs_.find(shape);
  call.program = ready.program;
  call.bytes_to_send = ready.bytes_to_send;
  call.bytes_to_receive = ready.bytes_to_receive;
  if (ready.lends && (settings_.links.crowded || ready.most_to_one >= PeerMemory::least_to_one))
    call.lender = settings_.peer_memory;
  call.answers = settings_.answers;
  // Ranks that share cores take too unequal turns for the clock to tell.
  if (call.lender != nullptr && call.answers != nullptr && !settings_.links.crowded)
    call.lending = std::make_shared<Lending>();
  call.priority = request.priority;
  call.size_by_link = !has_common_count(request.collective);
  call.divisor = reducing && request.op == ReduceOp::average ? settings_.world : 0;
  call.element_bytes = shape.element_bytes;
  call.count = shape.count;
  call.header = {.epoch = settings_.epoch,
                 .collective = request.part_of == Composite::none ? request.collective : as_collective(request.part_of),
                 .dtype = dtype,
                 .op = reducing ? request.op : ReduceOp::sum,
                 .algorithm = shape.algorithm,
                 .slice_log2 = static_cast<std::uint8_t>(std::bit_width(ready.slice_bytes) - 1),
                 .urgency = static_cast<std::uint8_t>(urgency_of(request.priority)),
                 .root_or_dims = has_root(shape.collective) ? static_cast<std::uint32_t>(shape.root)
                                                            : hash_of_dims(shape.dims, shape.periodic),
                 .label = request.label,
                 .size = shape.count};
  if (!has_shape(request, shape)) call.header.label.shape = hash_of(splits_of(request));
  call.stamp = CallStamp::of(call.header, hash_of_dims(shape.dims, shape.periodic));
  return call;
}

}  // namespace ranvier::engine
