#include "engine/bounded_calls.h"

#include <fmt/format.h>

#include <new>
#include <utility>

#include "engine/bounded_operation.h"
#include "engine/engine.h"
#include "engine/request.h"
#include "ranvier/error.h"

namespace ranvier::engine {
namespace {

// Null where everything is exact.
std::shared_ptr<BoundedTools> tools_of(Transport& transport, const CommunicatorOptions& options) {
  const TransportChoice choice = parse_transport(options.transport);
  if (choice.loss == 0 || transport.world() == 1) return nullptr;
  PartialMessages* const messages = transport.partial_messages();
  if (messages == nullptr)
    throw Error(
        ErrorKind::config,
        fmt::format("'{}' needs packets of {} B on every path and a link that is not paced; raise the MTU, drop "
                    "the link's rate, or take udp, which is exact",
                    options.transport, PartialMessages::piece_bytes + 64));
  return std::make_shared<BoundedTools>(*messages, choice.loss, choice.resync, transport.world());
}

}  // namespace

BoundedCalls::BoundedCalls(Transport& transport, const CommunicatorOptions& options)
    : rank_(transport.rank()),
      world_(transport.world()),
      names_(options.world_ranks),
      keeps_to_links_(!options.topology.empty()),
      tools_(tools_of(transport, options)) {}

void BoundedCalls::check_lost(const Request& request) {
  if (request.lost.size() != request.input.count)
    throw Error(ErrorKind::usage, fmt::format("the memory for what is lost has {} values and the input {}; give as "
                                              "many, or none",
                                              request.lost.size(), request.input.count));
  if (overlap(request.input, request.lost) || overlap(request.output, request.lost))
    throw Error(ErrorKind::usage,
                "the memory for what is lost is also the input's or the output's; give it memory of its own");
}

bool BoundedCalls::can_run(const Request& request) const { return BoundedOperation::serves(request, world_); }

std::shared_ptr<Operation> BoundedCalls::start(Engine& engine, Calls& calls, const Request& request,
                                               std::chrono::nanoseconds timeout) {
  shape_of(request, rank_, world_, names_);
  CollectiveCall call = BoundedOperation::call_of(calls, request);
  const std::uint64_t number = started_.fetch_add(1, std::memory_order_relaxed);
  call.set_ticket(engine.next_ticket(request.priority, call.stamp));
  std::shared_ptr<BoundedOperation> operation;
  try {
    operation = std::make_shared<BoundedOperation>(tools_, std::move(call), request, number, rank_, world_);
  } catch (const std::bad_alloc&) {
    // The others would wait for what has this ticket.
    const Error why(ErrorKind::config,
                    fmt::format("{} has no memory for a sum of {} values with bounded loss; allow its process more, or "
                                "sum fewer at a time",
                                names_(rank_), request.input.count),
                    rank_);
    engine.abort(why);
    throw engine.with_record(why);
  }
  return engine.start(std::move(operation), timeout);
}

LossCounts BoundedCalls::losses() const {
  if (!tools_) return {};
  return {.due = tools_->pieces_due.load(), .missing = tools_->pieces_missing.load()};
}

void BoundedCalls::realigned() const {
  if (tools_) tools_->realigned();
}

}  // namespace ranvier::engine
