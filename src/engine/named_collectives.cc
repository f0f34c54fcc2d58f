// The members of Communicator that name a collective: each fills in a Request.
#include "ranvier/communicator.h"

namespace ranvier {
namespace {

Request request(Collective collective, ConstTypedSpan input, TypedSpan output, const CollectiveOptions& options,
                Rank root = 0) {
  return {.collective = collective,
          .input = input,
          .output = output,
          .op = options.op,
          .root = root,
          .algorithm = options.algorithm,
          .timeout = options.timeout,
          .priority = options.priority};
}

}  // namespace

void Communicator::all_reduce(TypedSpan data, const CollectiveOptions& options) {
  run(request(Collective::all_reduce, data, data, options));
}
void Communicator::reduce(ConstTypedSpan input, TypedSpan output, Rank root, const CollectiveOptions& options) {
  run(request(Collective::reduce, input, rank() == root ? output : TypedSpan(nullptr, 0, input.dtype), options, root));
}
void Communicator::broadcast(TypedSpan data, Rank root, const CollectiveOptions& options) {
  run(request(Collective::broadcast, rank() == root ? ConstTypedSpan(data) : ConstTypedSpan(nullptr, 0, data.dtype),
              data, options, root));
}
void Communicator::all_gather(ConstTypedSpan input, TypedSpan output, const CollectiveOptions& options) {
  run(request(Collective::all_gather, input, output, options));
}
void Communicator::reduce_scatter(ConstTypedSpan input, TypedSpan output, const CollectiveOptions& options) {
  run(request(Collective::reduce_scatter, input, output, options));
}
void Communicator::all_to_all(ConstTypedSpan input, TypedSpan output, const CollectiveOptions& options) {
  run(request(Collective::all_to_all, input, output, options));
}
void Communicator::gather(ConstTypedSpan input, TypedSpan output, Rank root, const CollectiveOptions& options) {
  run(request(Collective::gather, input, rank() == root ? output : TypedSpan(nullptr, 0, input.dtype), options, root));
}
void Communicator::scatter(ConstTypedSpan input, TypedSpan output, Rank root, const CollectiveOptions& options) {
  run(request(Collective::scatter, rank() == root ? input : ConstTypedSpan(nullptr, 0, output.dtype), output, options,
              root));
}
void Communicator::neighbor_exchange(ConstTypedSpan input, TypedSpan output, const CollectiveOptions& options) {
  run(request(Collective::neighbor_exchange, input, output, options));
}
void Communicator::barrier(const CollectiveOptions& options) { run(request(Collective::barrier, {}, {}, options)); }

}  // namespace ranvier
