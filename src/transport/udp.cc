// The udp transport's endpoint: one port a process.
#include <utility>

#include "ranvier/transport.h"
#include "transport/plain.h"
#include "transport/published_address.h"
#include "transport/udp_transport.h"

namespace ranvier {
namespace {

using namespace transport;

class UdpEndpoint final : public Endpoint {
 public:
  UdpEndpoint(const WorldInfo& info, const UdpOptions& options)
      : info_(info), options_(options), socket_(std::make_unique<UdpSocket>(options.interface_address, options.ports)) {
    address_.token = random_token();
    address_.port = socket_->port();
    set_place(address_, options.interface_address);
  }

  std::string address() const override { return address_.text(); }

  std::unique_ptr<Transport> connect(const std::vector<std::string>& addresses,
                                     std::chrono::steady_clock::time_point deadline) override {
    const auto parsed = parse_addresses<UdpAddress>("udp", info_.world, addresses);
    if (!options_.plain_between_hosts)
      for (std::size_t rank = 0; rank < parsed.size(); ++rank)
        refuse_other_host("udp", static_cast<Rank>(rank), parsed[rank].host, parsed[rank].ips);
    return udp_transport(info_, std::move(socket_), parsed, deadline);
  }

 private:
  const WorldInfo info_;
  const UdpOptions options_;
  std::unique_ptr<UdpSocket> socket_;
  UdpAddress address_;
};

}  // namespace

std::unique_ptr<Endpoint> udp_endpoint(const WorldInfo& info, const UdpOptions& options) {
  return std::make_unique<UdpEndpoint>(info, options);
}

}  // namespace ranvier
