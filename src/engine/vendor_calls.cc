#include "engine/vendor_calls.h"

#include <fmt/format.h>

#include "engine/engine.h"
#include "engine/request.h"
#include "engine/vendor_operation.h"
#include "ranvier/error.h"

namespace ranvier::engine {
namespace {

// What the library is given for `request`, which has equal parts. Throws Error{usage} where the request is impossible.
VendorCall call_of(const Request& request, Rank rank, Rank world, const RankNames& names) {
  const Shape shape = shape_of(request, rank, world, names);
  return {.collective = request.collective,
          .dtype = request.output.data != nullptr ? request.output.dtype : request.input.dtype,
          .op = request.op,
          .input = request.input.data,
          .output = request.output.data,
          .count = request.collective == Collective::barrier ? 0 : shape.count,
          .root = shape.root};
}

// As a collective of ranvier's own would have it.
CallStamp stamp_of(const VendorCall& call, const CallLabel& label) {
  const bool reducing = reduces(call.collective) && call.collective != Collective::barrier;
  return CallStamp::of({.collective = call.collective,
                        .dtype = call.dtype,
                        .op = reducing ? call.op : ReduceOp::sum,
                        .root_or_dims = has_root(call.collective) ? static_cast<std::uint32_t>(call.root) : 0,
                        .label = call.count > 0 ? label : CallLabel{.element = label.element},
                        .size = call.count});
}

}  // namespace

void VendorCalls::prefer() {
  if (library_ == nullptr && world_ > 1)
    throw Error(ErrorKind::usage, fmt::format("transport {} has no collectives of its own for algorithm vendor; use "
                                              "transport mpi with a process for each rank, or another algorithm",
                                              transport_));
  preferred_ = true;
}

// The program's choice is for what the library can; a request's own is an order.
bool VendorCalls::can_run(const Request& request, bool ordered) const {
  const std::string why_not = refusal(request);
  if (ordered && !why_not.empty())
    throw Error(ErrorKind::usage, fmt::format("{} cannot run as vendor: {}", name_of(request.collective), why_not));
  return why_not.empty();
}

std::string VendorCalls::refusal(const Request& request) const {
  if (library_ == nullptr)
    return "this transport's library has no collectives; take transport mpi, or another algorithm";
  if (!request.input_splits.empty() || !request.output_splits.empty())
    return "it takes parts of one size only; take another algorithm";
  if (request.part_of != Composite::none)
    return "a library does not compare what it is a part of; take another algorithm";
  return library_->refusal(VendorOperation::summing(call_of(request, rank_, world_, names_)));
}

std::shared_ptr<Operation> VendorCalls::start(Engine& engine, const Request& request,
                                              std::chrono::nanoseconds timeout) const {
  const VendorCall call = call_of(request, rank_, world_, names_);
  const std::uint32_t sequence = engine.count_call(stamp_of(call, request.label));
  return engine.start(std::make_shared<VendorOperation>(*library_, call, sequence, rank_, world_), timeout);
}

}  // namespace ranvier::engine
