#include "engine/vendor_operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/request.h"
#include "ranvier/error.h"
#include "ranvier/kernel.h"

namespace ranvier::engine {
namespace {

// As the library is asked: libraries have no average.
VendorCall summing(VendorCall call) {
  if (call.op == ReduceOp::average) call.op = ReduceOp::sum;
  return call;
}

}  // namespace

VendorOperation::VendorOperation(VendorCollectives& library, const VendorCall& call, Rank rank, Rank world)
    : library_(library),
      call_(call),
      rank_(rank),
      divisor_(reduces(call.collective) && call.op == ReduceOp::average ? world : 0) {}

void VendorOperation::begin() {
  try {
    transfer_ = library_.start(summing(call_));
  } catch (...) {
    problem_ = std::current_exception();
  }
}

Progress VendorOperation::advance(Transport&, bool) {
  if (problem_) std::rethrow_exception(problem_);
  if (!library_.over(transfer_)) return Progress::blocked;
  if (divisor_ > 0 && (call_.collective != Collective::reduce || rank_ == call_.root)) divide();
  return Progress::done;
}

void VendorOperation::divide() const {
  alignas(64) static constexpr std::array<std::byte, 4096> zeros{};
  const auto add = kernel::reduce_function(ReduceOp::average, call_.dtype);
  const std::size_t piece = zeros.size() / size_of(call_.dtype);
  auto* to = static_cast<std::byte*>(call_.output);
  for (std::size_t left = call_.count; left > 0;) {
    const std::size_t count = std::min(left, piece);
    add(to, to, zeros.data(), count, divisor_);
    to += count * size_of(call_.dtype);
    left -= count;
  }
}

std::string VendorOperation::describe() const {
  return fmt::format("{} by the transport's library ({} x {}, {})", name_of(call_.collective), name_of(call_.dtype),
                     call_.count, name_of(call_.op));
}

FlightRecorder::Entry VendorOperation::entry() const {
  return {.collective = call_.collective,
          .dtype = call_.dtype,
          .op = call_.op,
          .bytes = call_.count * size_of(call_.dtype)};
}

VendorCall vendor_call(const Request& request, Rank rank, Rank world) {
  const Shape shape = shape_of(request, rank, world);
  return {.collective = request.collective,
          .dtype = request.output.data != nullptr ? request.output.dtype : request.input.dtype,
          .op = request.op,
          .input = request.input.data,
          .output = request.output.data,
          .count = request.collective == Collective::barrier ? 0 : shape.count,
          .root = request.root};
}

std::string vendor_refusal(const VendorCollectives* library, const Request& request, Rank rank, Rank world) {
  if (library == nullptr)
    return "this transport's library has no collectives; take transport mpi, or another algorithm";
  if (!request.input_splits.empty() || !request.output_splits.empty())
    return "it takes parts of one size only; take another algorithm";
  return library->refusal(summing(vendor_call(request, rank, world)));
}

}  // namespace ranvier::engine
