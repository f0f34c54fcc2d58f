#include "bench/communicator_peer.h"

#include <array>

#include "bench/kernel_packets.h"

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
    if (communicator_.transport_name() == "shm") return {};
    const KernelPackets kernel = kernel_packets();
    // Those of tcp as its peers' are counted, acknowledgements and all.
    if (communicator_.transport_name().find("udp") == std::string_view::npos) return kernel.tcp;
    auto own = communicator_.packet_counts().value_or(PacketCounts{});
    own.refused += kernel.damaged_udp;
    return own;
  }
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
    algorithm_ = job.algorithm;
    request_.algorithm = algorithm_;
    if (job.collective == Collective::barrier) request_.input = request_.output = TypedSpan();
  }

  void run(std::uint64_t times) override {
    runs_ += times;
    if (request_.collective == Collective::send) return send_around(times);
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
  std::uint64_t runs_ = 0;  // since ranks were realigned
};

}  // namespace

std::unique_ptr<Peer> communicator_peer(Communicator& communicator, Buffers buffers) {
  return std::make_unique<CommunicatorPeer>(communicator, buffers);
}

}  // namespace ranvier::bench
