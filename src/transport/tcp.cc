// The tcp transport's endpoint: every pair of ranks gets one socket a lane.
#include "ranvier/transport.h"
#include "transport/tcp_meeting.h"
#include "transport/tcp_transport.h"

namespace ranvier {
namespace {

using namespace transport;

// Each holds several slices, so that both sides keep working while the other computes. With the default sizes 64 MiB
// took 1.5 times as long.
constexpr SocketBuffers buffers{.send = 4 << 20, .receive = 8 << 20};

class TcpEndpoint final : public Endpoint {
 public:
  TcpEndpoint(const WorldInfo& info, const TcpOptions& options)
      : info_(info),
        meeting_(info,
                 {.purpose = TcpPurpose::data, .interface_address = options.interface_address, .buffers = buffers}) {}

  std::string address() const override { return meeting_.address(); }

  std::unique_ptr<Transport> connect(const std::vector<std::string>& addresses,
                                     std::chrono::steady_clock::time_point deadline) override {
    std::vector<TcpLink> links;
    for (Rank peer = 0; peer < info_.world; ++peer)
      for (Lane lane = 0; lane < lane_count && peer != info_.rank; ++lane) links.push_back({peer, lane});
    std::vector<Fd> connected = meeting_.connect(addresses, links, deadline);

    std::vector<Fd> sockets(static_cast<std::size_t>(info_.world) * lane_count);
    for (std::size_t i = 0; i < links.size(); ++i)
      sockets[static_cast<std::size_t>(links[i].peer) * lane_count + links[i].channel] = std::move(connected[i]);
    return tcp_transport(info_.rank, info_.world, std::move(sockets));
  }

 private:
  const WorldInfo info_;
  TcpMeeting meeting_;
};

}  // namespace

std::unique_ptr<Endpoint> tcp_endpoint(const WorldInfo& info, const TcpOptions& options) {
  return std::make_unique<TcpEndpoint>(info, options);
}

}  // namespace ranvier
