// The endpoint of tcp and of grpc: every pair of ranks gets one socket a lane, or as many as were asked for, which over
// grpc carries a call.
#include "ranvier/transport.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/cpu_set.h"
#include "ranvier/error.h"
#include "transport/published_address.h"
#include "transport/tcp_meeting.h"
#include "transport/tcp_transport.h"

namespace ranvier {
namespace {

using namespace transport;

class TcpEndpoint final : public Endpoint {
 public:
  TcpEndpoint(const WorldInfo& info, const TcpOptions& options, bool calls, std::shared_ptr<TcpDoor> door)
      : info_(info),
        sockets_(static_cast<std::size_t>(options.sockets)),
        calls_(calls),
        meeting_(info, {.purpose = TcpPurpose::data,
                        .interface_address = options.interface_address,
                        .buffers = tcp_buffers,
                        .sockets = options.sockets,
                        .security = options.security,
                        .ports = options.ports,
                        .calls = calls,
                        .own_host_only = calls && options.security.certificate.empty() && !options.security.insecure,
                        .door = std::move(door)}) {}

  std::string address() const override { return meeting_.address(); }

  std::unique_ptr<Transport> connect(const std::vector<std::string>& addresses,
                                     std::chrono::steady_clock::time_point deadline) override {
    const std::size_t channels = lane_count * sockets_;  // of a peer
    std::vector<TcpLink> links;
    for (Rank peer = 0; peer < info_.world; ++peer)
      for (std::size_t channel = 0; channel < channels && peer != info_.rank; ++channel)
        links.push_back({peer, static_cast<std::uint8_t>(channel)});
    std::vector<Channel> connected = meeting_.connect(addresses, links, deadline);

    const auto parsed = parse_addresses<TcpAddress>("tcp", info_.world, addresses);
    SharedCores cores;
    for (Rank rank = 0; rank < info_.world; ++rank) {
      const auto link = std::ranges::find(links, rank, &TcpLink::peer);
      if (link == links.end() || is_local(connected[static_cast<std::size_t>(link - links.begin())].socket()))
        cores.add_rank(parsed[static_cast<std::size_t>(rank)].cpus);
    }
    std::vector<Channel> sorted(static_cast<std::size_t>(info_.world) * channels);
    for (std::size_t i = 0; i < links.size(); ++i)
      sorted[static_cast<std::size_t>(links[i].peer) * channels + links[i].channel] = std::move(connected[i]);
    return tcp_transport(calls_ ? "grpc" : "tcp", info_.rank, info_.world, sockets_, std::move(sorted),
                         cores.ranks_per_core());
  }

 private:
  const WorldInfo info_;
  const std::size_t sockets_;
  const bool calls_;
  TcpMeeting meeting_;
};

std::unique_ptr<Endpoint> make_endpoint(std::shared_ptr<TcpDoor> door, const WorldInfo& info, const TcpOptions& options,
                                        bool calls) {
  static_assert(most_sockets * lane_count <= 256, "a link's channel is a byte");
  if (options.sockets < 1 || options.sockets > most_sockets)
    throw Error(ErrorKind::usage,
                fmt::format("{} sockets a link are not possible; choose 1 to {}", options.sockets, most_sockets));
  return std::make_unique<TcpEndpoint>(info, options, calls, std::move(door));
}

}  // namespace

namespace transport {

std::unique_ptr<Endpoint> tcp_endpoint_at(std::shared_ptr<TcpDoor> door, const WorldInfo& info,
                                          const TcpOptions& options) {
  return make_endpoint(std::move(door), info, options, false);
}

std::unique_ptr<Endpoint> grpc_endpoint_at(std::shared_ptr<TcpDoor> door, const WorldInfo& info,
                                           const TcpOptions& options) {
  const SecurityOptions& security = options.security;
  if (!security.key_file.empty() || (security.encrypt_everywhere && security.certificate.empty()))
    throw Error(ErrorKind::config,
                "grpc encrypts by certificates only; name them in --certificate, --private-key and --authority "
                "(RANVIER_CERTIFICATE, RANVIER_PRIVATE_KEY and RANVIER_AUTHORITY), or use tcp");
  return make_endpoint(std::move(door), info, options, true);
}

}  // namespace transport

std::unique_ptr<Endpoint> tcp_endpoint(const WorldInfo& info, const TcpOptions& options) {
  return transport::tcp_endpoint_at(nullptr, info, options);
}

std::unique_ptr<Endpoint> grpc_endpoint(const WorldInfo& info, const TcpOptions& options) {
  return transport::grpc_endpoint_at(nullptr, info, options);
}

}  // namespace ranvier
