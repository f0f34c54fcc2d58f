// How ranks that know each other's addresses come to have connected sockets: a listener, TLS where the connection
// leaves the host, and a handshake that proves each connection to be between these two ranks of this job and epoch.
// Strangers, who may connect, send anything or nothing, are dropped and hold nobody up.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/rank_names.h"
#include "base/socket.h"
#include "ranvier/error.h"
#include "ranvier/security.h"
#include "ranvier/transport.h"
#include "transport/channel.h"
#include "transport/tcp_address.h"
#include "transport/tcp_door.h"
#include "transport/tcp_hello.h"

namespace ranvier::transport {

// A connection to have: several between two ranks differ in their channel.
struct TcpLink {
  Rank peer = 0;
  std::uint8_t channel = 0;
};

struct MeetingOptions {
  TcpPurpose purpose = TcpPurpose::data;
  std::string interface_address = {};  // see TcpOptions
  SocketBuffers buffers = {};
  int sockets = 1;  // a lane; connect() throws Error{mismatch} where other ranks want another number
  SecurityOptions security = {};
  PortRange ports = {};
  bool calls = false;          // each connection is a call of gRPC, for networks where nothing but HTTP/2 passes
  bool own_host_only = false;  // a rank of another host is refused, and whoever else comes from there shown out
  std::chrono::milliseconds greeting_limit{5000};  // in which whoever has connected proves who he is
  RankNames names = {};                            // in errors
  std::shared_ptr<TcpDoor> door = {};              // of several meetings of this process; none: this one makes its own
  // Called before connect() throws, with the channels that stand: the others can be told there.
  std::function<void(const Error& why, std::span<Channel> standing)> on_failure = {};
};

class TcpMeeting {
 public:
  TcpMeeting(const WorldInfo& info, MeetingOptions options);

  std::string address() const { return address_.text(); }

  // Connected channels, in the order of `links`; both ends must ask for a link. The higher rank dials.
  // Returns when all stand, and lets go of the door: call it once. Throws Error{unreachable} naming the ranks that were
  // not reached by `deadline` and the addresses that were tried. A meeting of control planes, which nothing watches
  // over yet, throws Error{peer_lost} once nobody listens where a rank did.
  std::vector<Channel> connect(const std::vector<std::string>& addresses, const std::vector<TcpLink>& links,
                               std::chrono::steady_clock::time_point deadline);

 private:
  const WorldInfo info_;
  const MeetingOptions options_;
  std::shared_ptr<TcpDoor> door_;
  TcpAddress address_;
};

}  // namespace ranvier::transport
