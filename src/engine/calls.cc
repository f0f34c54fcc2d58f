#include "engine/calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <mutex>
#include <utility>

#include "engine/request.h"
#include "engine/selection.h"
#include "ranvier/error.h"

namespace ranvier::engine {
namespace {

bool builds(const Algorithm& algorithm, Collective collective) {
  return std::ranges::count(algorithm.collectives, collective) > 0;
}

// Where `name` stands in algorithms(). Throws Error{usage} for one that is unknown or cannot build `collective`.
std::uint8_t index_of(std::string_view name, Collective collective) {
  for (std::size_t i = 0; i < algorithms().size(); ++i)
    if (algorithms()[i].name == name && builds(algorithms()[i], collective)) return static_cast<std::uint8_t>(i);
  find_algorithm(name, collective);  // says what is wrong with it
  throw Error(ErrorKind::internal, fmt::format("algorithm '{}' was not found where it is", name));
}

// A barrier is an all_reduce of one byte: it ends when every rank has contributed.
Collective built_as(Collective collective) {
  return collective == Collective::barrier ? Collective::all_reduce : collective;
}

}  // namespace

Calls::Calls(CallSettings settings)
    : settings_(std::move(settings)), programs_(settings_.rank, settings_.world, settings_.slice_bytes, settings_.buffered_bytes) {
  if (settings_.algorithm == "auto") return;
  const auto found = std::ranges::find(algorithms(), std::string_view(settings_.algorithm), &Algorithm::name);
  if (found == algorithms().end()) find_algorithm(settings_.algorithm, Collective::all_reduce);  // says so
  own_ = &*found;
}

RequestKey::RequestKey(const Request& request)
    : input_count_(request.input.count),
      output_count_(request.output.count),
      root_(request.root),
      collective_(request.collective),
      op_(request.op),
      input_type_(request.input.dtype),
      output_type_(request.output.dtype) {
  const auto from = reinterpret_cast<std::uintptr_t>(request.input.data);
  const auto to = reinterpret_cast<std::uintptr_t>(request.output.data);
  const bool separate = from + request.input.bytes() <= to || to + request.output.bytes() <= from;
  distance_ = separate ? apart : static_cast<std::ptrdiff_t>(from - to);
  if (request.algorithm == "auto")
    algorithm_ = automatic;
  else if (!request.algorithm.empty())
    algorithm_ = index_of(request.algorithm, built_as(request.collective));
}

std::size_t RequestKey::hash() const {
  return (input_count_ * 31 + output_count_ + static_cast<std::size_t>(collective_)) * 0x9E3779B97F4A7C15u;
}

CollectiveCall Calls::prepare(const Request& request) {
  if (!RequestKey::even(request)) return make(request);
  const RequestKey key(request);
  Entry& place = recent_[key.hash() >> 58];
  {
    const std::lock_guard lock(lock_);
    if (place.key == key) return place.call;
  }
  Entry entry{key, make(request)};
  CollectiveCall call = entry.call;
  const std::lock_guard lock(lock_);
  std::swap(place, entry);
  return call;
}

CollectiveCall Calls::make(const Request& request) {
  Shape shape = shape_of(request, settings_.rank, settings_.world);
  const bool barrier = request.collective == Collective::barrier;
  shape.collective = built_as(request.collective);
  const bool reducing = reduces(request.collective) && !barrier;
  const DType dtype =
      barrier ? DType::u8 : (request.output.data != nullptr ? request.output.dtype : request.input.dtype);

  const bool uneven = !RequestKey::even(request);
  std::string_view name = request.algorithm;
  // The communicator's own choice is for what it can build; a request's is an order.
  const bool own = own_ != nullptr && builds(*own_, shape.collective) && (own_->uneven || !uneven);
  if (name.empty()) name = own ? own_->name : "auto";
  if (name == "auto")
    name = select_algorithm({.collective = shape.collective,
                             .world = settings_.world,
                             .bytes = shape.count * shape.element_bytes,
                             .uneven = uneven,
                             .shared_memory = settings_.shared_memory});
  shape.algorithm = index_of(name, shape.collective);
  if (uneven && !algorithms()[shape.algorithm].uneven)
    throw Error(ErrorKind::usage, fmt::format("{} with uneven splits cannot run as a {}, whose inner ranks do not know "
                                              "the sizes of others' parts; use direct",
                                              name_of(request.collective), name));

  CollectiveCall call;
  if (barrier) call.reduce = kernel::reduce_function(ReduceOp::max, dtype);
  if (reducing) call.reduce = kernel::reduce_function(request.op, dtype);
  const ReadyProgram ready = programs_.find(shape);
  call.program = ready.program;
  call.bytes_to_send = ready.bytes_to_send;
  call.bytes_to_receive = ready.bytes_to_receive;
  call.size_by_link = !has_common_count(request.collective);
  call.divisor = reducing && request.op == ReduceOp::average ? settings_.world : 0;
  call.element_bytes = shape.element_bytes;
  call.count = shape.count;
  call.header = {.epoch = settings_.epoch,
                 .collective = request.collective,
                 .dtype = dtype,
                 .op = reducing ? request.op : ReduceOp::sum,
                 .algorithm = shape.algorithm,
                 .slice_log2 = static_cast<std::uint8_t>(std::bit_width(ready.slice_bytes) - 1),
                 .root = shape.root,
                 .size = shape.count};
  return call;
}

}  // namespace ranvier::engine
