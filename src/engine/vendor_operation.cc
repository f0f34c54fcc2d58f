#include "engine/vendor_operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/message_header.h"
#include "engine/request.h"
#include "ranvier/kernel.h"

namespace ranvier::engine {

VendorCall VendorOperation::summing(VendorCall call) {
  if (call.op == ReduceOp::average) call.op = ReduceOp::sum;
  return call;
}

VendorOperation::VendorOperation(VendorCollectives& library, const VendorCall& call, std::uint32_t sequence, Rank rank,
                                 Rank world)
    : library_(library),
      call_(call),
      sequence_(sequence),
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
  return fmt::format("{} {} by the transport's library ({} x {}, {})", name_of(call_.collective),
                     call_number(sequence_), name_of(call_.dtype), call_.count, name_of(call_.op));
}

FlightRecorder::Entry VendorOperation::entry() const {
  return {.sequence = sequence_,
          .collective = call_.collective,
          .dtype = call_.dtype,
          .op = call_.op,
          .bytes = call_.count * size_of(call_.dtype)};
}

}  // namespace ranvier::engine
