#include "transport/mpi/mpi_collectives.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <limits>
#include <mutex>
#include <utility>

#include "ranvier/error.h"
#include "transport/mpi/mpi_library.h"
#include "transport/mpi/mpi_requests.h"
#include "transport/mpi/mpi_types.h"

namespace ranvier::transport {
namespace {

bool reduces(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce ||
         collective == Collective::reduce_scatter;
}

class MpiCollectives final : public VendorCollectives {
 public:
  explicit MpiCollectives(MPI_Comm communicator) : communicator_(communicator) { MPI_Comm_rank(communicator, &rank_); }
  // The communicator stays: freeing one is collective, and ranks end when they like.

  std::string refusal(const VendorCall& call) const override {
    if (reduces(call.collective) && op_of(call.op, call.dtype) == MPI_OP_NULL)
      return fmt::format("MPI has no {}; take op sum, or another algorithm", name_of(call.op));
    if (reduces(call.collective) && type_of(call.dtype) == MPI_DATATYPE_NULL)
      return fmt::format("MPI cannot add {}; take f32, or another algorithm", name_of(call.dtype));
    if (call.collective == Collective::neighbor_exchange)
      return "MPI's neighbour collectives need its own topologies; take another algorithm";
    if (call.collective == Collective::reduce_scatter && is_own_part(call))
      return "MPI reduces and scatters in place in a way of its own; use two buffers, or take another algorithm";
    if (call.count > static_cast<std::size_t>(std::numeric_limits<int>::max()) / 8)
      return fmt::format("MPI counts with an int, and {} elements are too many; take another algorithm", call.count);
    return {};
  }

  Transfer start(const VendorCall& call) override {
    const auto lock = library_.calls();
    const Transfer transfer = requests_.add(MPI_REQUEST_NULL);
    waiting_.emplace_back(call, transfer);
    if (library_.may_be_called()) begin_waiting();
    return transfer;
  }

  bool over(Transfer transfer) override {
    if (!library_.may_be_called()) return false;
    const auto lock = library_.calls();
    begin_waiting();
    return requests_.over(transfer);
  }

 private:
  // In the order in which they were started: MPI matches them by it. Behind one that fails none can be begun, and its
  // own memory may be gone by the time that the next one asks.
  void begin_waiting() {
    if (failure_) std::rethrow_exception(failure_);
    for (; !waiting_.empty(); waiting_.pop_front()) {
      const auto& [call, transfer] = waiting_.front();
      MPI_Request request = MPI_REQUEST_NULL;
      try {
        MpiLibrary::check(begin(call, &request), name_of(call.collective).data());
      } catch (...) {
        failure_ = std::current_exception();
        throw;
      }
      requests_.replace(transfer, request);
    }
  }

  bool is_own_part(const VendorCall& call) const {
    return call.output == static_cast<const std::byte*>(call.input) +
                              static_cast<std::ptrdiff_t>(call.count * size_of(call.dtype)) * rank_;
  }

  int begin(const VendorCall& call, MPI_Request* request) {
    // What is only moved goes as bytes, so that every type does.
    const auto bytes = static_cast<int>(call.count * size_of(call.dtype));
    const auto count = static_cast<int>(call.count);
    const MPI_Datatype type = type_of(call.dtype);
    const MPI_Op op = op_of(call.op, call.dtype);
    const int root = call.root;
    const bool is_root = rank_ == root;
    const auto at_part = [&](const void* whole) {
      return static_cast<const std::byte*>(whole) + static_cast<std::ptrdiff_t>(bytes) * rank_;
    };
    const void* const input = call.input == call.output ? MPI_IN_PLACE : call.input;
    switch (call.collective) {
      case Collective::all_reduce:
        return MPI_Iallreduce(input, call.output, count, type, op, communicator_, request);
      case Collective::reduce:
        return MPI_Ireduce(is_root ? input : call.input, call.output, count, type, op, root, communicator_, request);
      case Collective::broadcast:
        return MPI_Ibcast(call.output, bytes, MPI_BYTE, root, communicator_, request);
      case Collective::all_gather:
        return MPI_Iallgather(call.input == at_part(call.output) ? MPI_IN_PLACE : call.input, bytes, MPI_BYTE,
                              call.output, bytes, MPI_BYTE, communicator_, request);
      case Collective::reduce_scatter:
        return MPI_Ireduce_scatter_block(call.input, call.output, count, type, op, communicator_, request);
      case Collective::all_to_all:
        return MPI_Ialltoall(input, bytes, MPI_BYTE, call.output, bytes, MPI_BYTE, communicator_, request);
      case Collective::gather:
        return MPI_Igather(is_root && call.input == at_part(call.output) ? MPI_IN_PLACE : call.input, bytes, MPI_BYTE,
                           call.output, bytes, MPI_BYTE, root, communicator_, request);
      case Collective::scatter:
        return MPI_Iscatter(call.input, bytes, MPI_BYTE,
                            is_root && at_part(call.input) == call.output ? MPI_IN_PLACE : call.output, bytes, MPI_BYTE,
                            root, communicator_, request);
      case Collective::barrier:
        return MPI_Ibarrier(communicator_, request);
      case Collective::neighbor_exchange:
      case Collective::send:
      case Collective::recv:
        break;
    }
    throw Error(ErrorKind::internal, fmt::format("MPI was asked for {}; please report this", name_of(call.collective)));
  }

  MpiLibrary& library_ = MpiLibrary::get();
  const MPI_Comm communicator_;
  int rank_ = 0;
  MpiRequests requests_;
  std::deque<std::pair<VendorCall, Transfer>> waiting_;  // for a thread that may call MPI
  std::exception_ptr failure_;
};

}  // namespace

std::unique_ptr<VendorCollectives> mpi_collectives(MPI_Comm all, const std::vector<int>& processes, int tag) {
  std::vector<int> distinct = processes;
  std::ranges::sort(distinct);
  if (std::ranges::adjacent_find(distinct) != distinct.end()) return nullptr;
  const auto lock = MpiLibrary::get().calls();
  MPI_Group everybody = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
  MPI_Comm made = MPI_COMM_NULL;
  MpiLibrary::check(MPI_Comm_group(all, &everybody), "MPI_Comm_group");
  MpiLibrary::check(MPI_Group_incl(everybody, static_cast<int>(processes.size()), processes.data(), &members),
                    "MPI_Group_incl");
  // Its ranks have all come, so none is waited for for long.
  MpiLibrary::check(MPI_Comm_create_group(all, members, tag, &made), "MPI_Comm_create_group");
  MPI_Group_free(&members);
  MPI_Group_free(&everybody);
  return std::make_unique<MpiCollectives>(made);
}

}  // namespace ranvier::transport
