#include "bench/communicator_peer.h"

#include <array>

#include "bench/kernel_packets.h"
#include "ranvier/error.h"

namespace ranvier::bench {
namespace {

class CommunicatorPeer final : public Peer {
 public:
  CommunicatorPeer(Communicator& communicator, Buffers buffers) : communicator_(communicator), buffers_(buffers) {}

  Rank rank() const override { return communicator_.rank(); }
  Rank world() const override { return communicator_.world(); }
  std::string description() const override {
    return communicator_.tolerated_loss() > 0 ? communicator_.options().transport
                                              : std::string(communicator_.transport_name());
  }
  LossCounts losses() const override { return communicator_.losses(); }
  PacketCounts packets() const override {
    return counts_itself() ? communicator_.packet_counts().value_or(PacketCounts()) : PacketCounts();
  }
  PacketCounts kernel_packets() const override {
    if (communicator_.transport_name() == "shm") return {};
    const KernelPackets counted = bench::kernel_packets();
    return counts_itself() ? PacketCounts{.refused = counted.damaged_udp} : counted.tcp;
  }
  bool fell_back() const override { return fell_back_; }
  std::shared_ptr<std::byte[]> allocate(std::size_t bytes) override {
    return buffers_ == Buffers::ranvier ? communicator_.allocate(bytes) : Peer::allocate(bytes);
  }
  std::string refusal(const Job&) const override { return {}; }

  void prepare(const Job& job, const void* input, void* output) override {
    const Shape shape = shape_of(job, rank(), world());
    request_ = {};
    request_.collective = job.collective;
    request_.input = ConstTypedSpan(input, shape.input, job.dtype);
    request_.output = TypedSpan(output, shape.output, job.dtype);
    request_.op = job.op;
    request_.root = job.root;
    request_.tolerates_loss = request_.may_differ = true;
    fell_back_ = false;
    algorithm_ = job.algorithm;
    // As a call's own choice it is refused where the library cannot.
    if (algorithm_.empty() && world() > 1 && communicator_.options().algorithm == "vendor") algorithm_ = "vendor";
    request_.algorithm = algorithm_;
    if (job.collective == Collective::barrier) request_.input = request_.output = TypedSpan();
  }

  void run(std::uint64_t times) override {
    runs_ += times;
    if (request_.collective == Collective::send) return send_around(times);
    if (request_.algorithm == "vendor" && times > 0) {
      run_by_library();
      --times;
    }
    for (; times > 0; --times) communicator_.run(request_);
  }

  // Between samples: what it takes to realign ranks is no part of an operation.
  void barrier() override {
    if (const std::uint64_t period = communicator_.resync(); period > 0 && runs_ >= period) {
      std::array<float, 1> anything{};  // no run goes on from another: only what ranks may go without is renewed
      communicator_.realign(anything);
      runs_ = 0;
    }
    communicator_.barrier();
  }

 private:
  // Over udp. What tcp does is counted by the kernel, as its peers' is, acknowledgements and all.
  bool counts_itself() const { return communicator_.transport_name().find("udp") != std::string_view::npos; }

  // Or by a schedule of ranvier's from now on, where the library cannot: on all ranks alike, before anything has moved.
  void run_by_library() {
    try {
      communicator_.run(request_);
    } catch (const Error& refused) {
      if (refused.kind() != ErrorKind::usage) throw;
      fell_back_ = true;
      request_.algorithm = "auto";
      communicator_.run(request_);
    }
  }

  void send_around(std::uint64_t times) {
    const Rank next = (rank() + 1) % world();
    const Rank previous = (rank() + world() - 1) % world();
    for (; times > 0; --times) {
      Work sent = communicator_.start_send(request_.input, next);
      communicator_.recv(request_.output, previous);
      sent.wait();
    }
  }

  Communicator& communicator_;
  const Buffers buffers_;
  std::string algorithm_;
  Request request_;
  bool fell_back_ = false;
  std::uint64_t runs_ = 0;  // since ranks were realigned
};

}  // namespace

std::unique_ptr<Peer> communicator_peer(Communicator& communicator, Buffers buffers) {
  return std::make_unique<CommunicatorPeer>(communicator, buffers);
}

}  // namespace ranvier::bench
