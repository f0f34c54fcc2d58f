// Open MPI beside ranvier: one rank of `ranvier bench --baseline mpi`, started by mpirun. Blocking collectives, each
// with MPI_IN_PLACE where the job is in place.
#include <fmt/format.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>

#include "bench/peer.h"
#include "transport/mpi/mpi_types.h"

namespace ranvier::bench {
namespace {

using transport::op_of;
using transport::type_of;

class MpiPeer final : public Peer {
 public:
  MpiPeer() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &world_);
  }

  Rank rank() const override { return rank_; }
  Rank world() const override { return world_; }

  std::string description() const override {
    std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    text.resize(static_cast<std::size_t>(length));
    return text.substr(0, text.find(','));  // "Open MPI v4.1.4"; package and author follow
  }

  std::string refusal(const Job& job) const override {
    if (type_of(job.dtype) == MPI_DATATYPE_NULL) return fmt::format("MPI has no {}", name_of(job.dtype));
    if (reduces(job.collective) && op_of(job.op, job.dtype) == MPI_OP_NULL)
      return fmt::format("MPI has no {} reduction", name_of(job.op));
    if (job.collective == Collective::broadcast && !job.in_place) return "MPI_Bcast has one buffer: it works in place";
    if (job.collective == Collective::reduce_scatter && job.in_place)
      return "MPI leaves the result of an in-place reduce_scatter at the start of the buffer, not in the rank's part";
    if (job.count > static_cast<std::size_t>(INT32_MAX)) return "MPI counts end at 2^31 - 1";
    return {};
  }

  void prepare(const Job& job, const void* input, void* output) override {
    const Shape shape = shape_of(job, rank_, world_);
    collective_ = job.collective;
    type_ = type_of(job.dtype);
    op_ = op_of(job.op, job.dtype);
    all_ = static_cast<int>(job.count);
    part_ = all_ / world_;
    in_place_ = job.in_place;
    root_ = job.root;
    input_ = input;
    output_ = output;
    if (shape.input == 0 && shape.output > 0) input_ = output;  // broadcast and scatter to ranks other than root
  }

  void run(std::uint64_t times) override {
    for (; times > 0; --times) run_once();
  }

  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }

 private:
  void run_once() {
    // Where MPI takes MPI_IN_PLACE: on every rank for most collectives, but only on the root of a rooted one.
    const void* from = in_place_ ? MPI_IN_PLACE : input_;
    const void* from_at_root = rank_ == root_ ? from : input_;
    switch (collective_) {
      case Collective::all_reduce:
        MPI_Allreduce(from, output_, all_, type_, op_, MPI_COMM_WORLD);
        break;
      case Collective::reduce:
        MPI_Reduce(from_at_root, output_, all_, type_, op_, root_, MPI_COMM_WORLD);
        break;
      case Collective::broadcast:
        MPI_Bcast(output_, all_, type_, root_, MPI_COMM_WORLD);
        break;
      case Collective::all_gather:
        MPI_Allgather(from, part_, type_, output_, part_, type_, MPI_COMM_WORLD);
        break;
      case Collective::reduce_scatter:
        MPI_Reduce_scatter_block(input_, output_, part_, type_, op_, MPI_COMM_WORLD);
        break;
      case Collective::all_to_all:
        MPI_Alltoall(from, part_, type_, output_, part_, type_, MPI_COMM_WORLD);
        break;
      case Collective::gather:
        MPI_Gather(from_at_root, part_, type_, output_, part_, type_, root_, MPI_COMM_WORLD);
        break;
      case Collective::scatter:
        // Here it is the receive buffer that MPI_IN_PLACE stands for.
        MPI_Scatter(input_, part_, type_, in_place_ && rank_ == root_ ? MPI_IN_PLACE : output_, part_, type_, root_,
                    MPI_COMM_WORLD);
        break;
      case Collective::barrier:
        MPI_Barrier(MPI_COMM_WORLD);
        break;
      case Collective::send:
        MPI_Sendrecv(input_, all_, type_, (rank_ + 1) % world_, 0, output_, all_, type_, (rank_ + world_ - 1) % world_,
                     0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        break;
      case Collective::neighbor_exchange:
      case Collective::recv:
        break;
    }
  }

  int rank_ = 0;
  int world_ = 1;
  Collective collective_ = Collective::barrier;
  MPI_Datatype type_ = MPI_BYTE;
  MPI_Op op_ = MPI_OP_NULL;
  Rank root_ = 0;
  int all_ = 0;
  int part_ = 0;
  bool in_place_ = false;
  const void* input_ = nullptr;
  void* output_ = nullptr;
};

int run(int argc, char** argv) {
  const char* socket = std::getenv(socket_variable);
  if (socket == nullptr) {
    std::fputs("ranvier-bench-mpi: this is a part of 'ranvier bench --baseline mpi'; start that\n", stderr);
    return 2;
  }
  MPI_Init(&argc, &argv);
  int code = 1;
  try {
    MpiPeer peer;
    code = serve(peer, connect_lines(socket));
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "ranvier-bench-mpi: %s\n", problem.what());
  }
  // A rank that failed leaves the others inside a collective: MPI_Finalize would wait for them.
  if (code != 0) MPI_Abort(MPI_COMM_WORLD, code);
  MPI_Finalize();
  return code;
}

}  // namespace
}  // namespace ranvier::bench

int main(int argc, char** argv) { return ranvier::bench::run(argc, argv); }
