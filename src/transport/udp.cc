// The udp transport's endpoint: one port a process.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ranvier/error.h"
#include "ranvier/transport.h"
#include "transport/plain.h"
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
    if (options.interface_address.empty()) {
      address_.host = host_identity();
      address_.ips = host_addresses();
    } else {
      address_.ips = {options.interface_address};
    }
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
