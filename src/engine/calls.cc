#include "engine/calls.h"

#include <bit>
#include <cstdint>
#include <mutex>
#include <utility>

#include "engine/request.h"
#include "engine/selection.h"

namespace ranvier::engine {
namespace {

std::uint8_t index_of(const Algorithm& algorithm) {
  return static_cast<std::uint8_t>(&algorithm - algorithms().data());
}

// A barrier is an all_reduce of one byte: it ends when every rank has contributed.
Collective built_as(Collective collective) {
  return collective == Collective::barrier ? Collective::all_reduce : collective;
}

}  // namespace

Calls::Calls(CallSettings settings)
    : settings_(std::move(settings)), programs_(settings_.rank, settings_.world, settings_.slice_bytes) {}

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
    algorithm_ = index_of(find_algorithm(request.algorithm, built_as(request.collective)));
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

  std::string_view name = request.algorithm.empty() ? std::string_view(settings_.algorithm) : request.algorithm;
  if (name == "auto")
    name = select_algorithm({.collective = shape.collective,
                             .world = settings_.world,
                             .bytes = shape.count * shape.element_bytes,
                             .uneven = !shape.input_splits.empty() || !shape.output_splits.empty(),
                             .shared_memory = settings_.shared_memory});
  shape.algorithm = index_of(find_algorithm(name, shape.collective));

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
                 .slice_log2 = static_cast<std::uint8_t>(std::bit_width(settings_.slice_bytes) - 1),
                 .root = shape.root,
                 .size = shape.count};
  return call;
}

}  // namespace ranvier::engine
