#include "engine/calls.h"

#include <bit>
#include <cstdint>
#include <mutex>
#include <utility>

#include "engine/request.h"
#include "engine/selection.h"

namespace ranvier::engine {

Calls::Calls(CallSettings settings)
    : settings_(std::move(settings)), programs_(settings_.rank, settings_.world, settings_.slice_bytes) {}

CollectiveCall Calls::prepare(const Request& request) {
  const bool even = request.input_splits.empty() && request.output_splits.empty();
  CollectiveCall call;
  bool found = false;
  if (even) {
    const Key key = key_of(request);
    Entry& entry = recent_[place_of(key)];
    const std::lock_guard lock(lock_);
    found = entry.key == key && entry.algorithm == request.algorithm;
    if (found) call = entry.call;
  }
  if (!found) {
    call = make(request);
    if (even) {
      const Key key = key_of(request);
      Entry entry{key, std::string(request.algorithm), call};
      const std::lock_guard lock(lock_);
      std::swap(recent_[place_of(key)], entry);  // the old one is freed after the lock
    }
  }
  // Programs only read from the input buffer.
  call.base = {static_cast<std::byte*>(const_cast<void*>(request.input.data)),
               static_cast<std::byte*>(request.output.data), nullptr};
  return call;
}

Calls::Key Calls::key_of(const Request& request) {
  const auto from = reinterpret_cast<std::uintptr_t>(request.input.data);
  const auto to = reinterpret_cast<std::uintptr_t>(request.output.data);
  const bool apart = from + request.input.bytes() <= to || to + request.output.bytes() <= from;
  return {.input_count = request.input.count,
          .output_count = request.output.count,
          .distance = apart ? Key::apart : static_cast<std::ptrdiff_t>(from - to),
          .root = request.root,
          .collective = request.collective,
          .op = request.op,
          .input_type = request.input.dtype,
          .output_type = request.output.dtype,
          .known = true};
}

std::size_t Calls::place_of(const Key& key) {
  const std::size_t mixed =
      (key.input_count * 31 + key.output_count + static_cast<std::size_t>(key.collective)) * 0x9E3779B97F4A7C15u;
  return mixed >> 58;
}

CollectiveCall Calls::make(const Request& request) {
  Shape shape = shape_of(request, settings_.rank, settings_.world);
  const bool barrier = request.collective == Collective::barrier;
  const bool reducing = reduces(request.collective) && !barrier;
  const DType dtype =
      barrier ? DType::u8 : (request.output.data != nullptr ? request.output.dtype : request.input.dtype);
  if (barrier) shape.collective = Collective::all_reduce;  // of one byte: it ends when every rank has contributed

  std::string_view name = request.algorithm.empty() ? std::string_view(settings_.algorithm) : request.algorithm;
  if (name == "auto")
    name = select_algorithm({.collective = shape.collective,
                             .world = settings_.world,
                             .bytes = shape.count * shape.element_bytes,
                             .uneven = !shape.input_splits.empty() || !shape.output_splits.empty(),
                             .shared_memory = settings_.shared_memory});
  const Algorithm& algorithm = find_algorithm(name, shape.collective);
  shape.algorithm = static_cast<std::uint8_t>(&algorithm - algorithms().data());

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
