// The udp transport's endpoint: one port a process.
#include <fmt/format.h>

#include <utility>

#include "ranvier/error.h"
#include "ranvier/transport.h"
#include "transport/udp_meeting.h"
#include "transport/udp_transport.h"

namespace ranvier {
namespace {

using namespace transport;

class UdpEndpoint final : public Endpoint {
 public:
  UdpEndpoint(const WorldInfo& info, const UdpOptions& options, std::shared_ptr<TcpDoor> door)
      : info_(info),
        socket_(std::make_unique<UdpSocket>(options.interface_address, options.ports)),
        meeting_(info, options, std::move(door)),
        address_(meeting_.address()) {
    address_.port = socket_->port();
  }

  std::string address() const override { return address_.text(); }

  std::unique_ptr<Transport> connect(const std::vector<std::string>& addresses,
                                     std::chrono::steady_clock::time_point deadline) override {
    if (addresses.size() != static_cast<std::size_t>(info_.world))
      throw Error(ErrorKind::usage,
                  fmt::format("{} addresses for a world of {} ranks; give one a rank", addresses.size(), info_.world));
    std::vector<UdpAddress> parsed;
    for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
      auto address = UdpAddress::parse(addresses[rank]);
      if (!address)
        throw Error(ErrorKind::mismatch,
                    fmt::format("rank {} published '{:.100}', which is no udp address of this version; run the same "
                                "ranvier on all ranks",
                                rank, addresses[rank]),
                    static_cast<Rank>(rank));
      parsed.push_back(std::move(*address));
    }
    const auto secrets = meeting_.connect(parsed, deadline);
    return udp_transport(info_, std::move(socket_), parsed, secrets, deadline);
  }

 private:
  const WorldInfo info_;
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
