// The udp transport's endpoint: one port a process.
#include <utility>

#include "ranvier/transport.h"
#include "transport/published_address.h"
#include "transport/udp_meeting.h"
#include "transport/udp_transport.h"

namespace ranvier {
namespace {

using namespace transport;

class UdpEndpoint final : public Endpoint {
 public:
  UdpEndpoint(const WorldInfo& info, const UdpOptions& options, std::shared_ptr<TcpDoor> door)
      : info_(info),
        unanswered_limit_(options.unanswered_limit),
        socket_(std::make_unique<UdpSocket>(options.interface_address, options.ports)),
        meeting_(info, options, std::move(door)),
        address_(meeting_.address()) {
    address_.port = socket_->port();
  }

  std::string address() const override { return address_.text(); }

  std::unique_ptr<Transport> connect(const std::vector<std::string>& addresses,
                                     std::chrono::steady_clock::time_point deadline) override {
    const auto parsed = parse_addresses<UdpAddress>("udp", info_.world, addresses);
    const auto secrets = meeting_.connect(parsed, deadline);
    return udp_transport(info_, std::move(socket_), parsed, secrets, unanswered_limit_, deadline);
  }

 private:
  const WorldInfo info_;
  const std::chrono::milliseconds unanswered_limit_;
  std::unique_ptr<UdpSocket> socket_;
  UdpMeeting meeting_;
  UdpAddress address_;
};

}  // namespace

namespace transport {

std::unique_ptr<Endpoint> udp_endpoint_at(std::shared_ptr<TcpDoor> door, const WorldInfo& info,
                                          const UdpOptions& options) {
  return std::make_unique<UdpEndpoint>(info, options, std::move(door));
}

}  // namespace transport

std::unique_ptr<Endpoint> udp_endpoint(const WorldInfo& info, const UdpOptions& options) {
  return transport::udp_endpoint_at(nullptr, info, options);
}

}  // namespace ranvier
