// How two ranks of the udp transport come to share secrets: a connection of tcp's meeting, which is TLS where it leaves
// the host, and lasts until both have exported what they seal their datagrams with.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ranvier/transport.h"
#include "transport/tcp_door.h"
#include "transport/udp_address.h"
#include "transport/udp_seal.h"

namespace ranvier::transport {

class UdpMeeting {
 public:
  // Listens at the door, or at one of its own if there is none; not at all where nothing is to be encrypted.
  UdpMeeting(const WorldInfo&, const UdpOptions&, std::shared_ptr<TcpDoor> door);
  ~UdpMeeting();

  // As the others must know it, but for the UDP port.
  UdpAddress address() const;

  // By rank, empty for one whose datagrams stay plain. Call it once. Throws as TcpMeeting::connect, and Error{mismatch}
  // for ranks that do not agree on whether they encrypt.
  std::vector<std::optional<UdpSecrets>> connect(const std::vector<UdpAddress>& addresses,
                                                 std::chrono::steady_clock::time_point deadline);

 private:
  const WorldInfo info_;
  const UdpOptions options_;
  const std::uint64_t key_;
  std::unique_ptr<class TcpMeeting> meeting_;  // none if nothing is encrypted
};

// The transport's endpoint at a door that the control plane uses too; null: at one of its own.
std::unique_ptr<Endpoint> udp_endpoint_at(std::shared_ptr<TcpDoor> door, const WorldInfo&, const UdpOptions&);

}  // namespace ranvier::transport
