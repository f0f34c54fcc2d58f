// The one TCP port on which a process can be reached while its job meets.
//
// Control plane and data have meetings of their own, one after the other, and ranks come to them at different times: a
// guest who has proved that it belongs to this job but comes for another meeting waits here for that one to begin.
#pragma once

#include <list>
#include <memory>
#include <string>

#include "base/socket.h"
#include "ranvier/transport.h"
#include "transport/tcp_address.h"
#include "transport/tcp_guest.h"

namespace ranvier::transport {

// Of a data connection. Each holds several slices, so that both sides keep working while the other computes. With the
// default sizes 64 MiB took 1.5 times as long.
inline constexpr SocketBuffers tcp_buffers{.send = 4 << 20, .receive = 8 << 20};

// Guests at a door who have proved nothing yet, beyond those that are expected: of more the oldest has to go.
inline constexpr std::size_t most_strangers = 64;

struct TcpDoor {
  // Listens on `interface_address`, see TcpOptions, on the first free port of `ports`.
  TcpDoor(const std::string& interface_address, const PortRange& ports, const SocketBuffers& buffers)
      : listener(listen_on(interface_address, ports, buffers)) {}

  Fd listener;
  const Token token = random_token();     // of rank 0's, the job's
  std::list<Guest> waiting;               // their hello was heard, and is not answered yet
  std::shared_ptr<const TlsContext> tls;  // of the job; made when the first connection needs it
};

// The transport's endpoint at a door that the control plane uses too; null: at one of its own.
std::unique_ptr<Endpoint> tcp_endpoint_at(std::shared_ptr<TcpDoor> door, const WorldInfo&, const TcpOptions&);
std::unique_ptr<Endpoint> grpc_endpoint_at(std::shared_ptr<TcpDoor> door, const WorldInfo&, const TcpOptions&);

}  // namespace ranvier::transport
