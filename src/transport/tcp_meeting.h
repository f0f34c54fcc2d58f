// How ranks that know each other's addresses come to have connected sockets: a listener, and a handshake that proves
// each connection to be between these two ranks of this job and epoch. Strangers, who may connect, send anything or
// nothing, are dropped and hold nobody up.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/socket.h"
#include "ranvier/transport.h"
#include "transport/tcp_address.h"

namespace ranvier::transport {

// A connection to have: several between two ranks differ in their channel.
struct TcpLink {
  Rank peer = 0;
  std::uint8_t channel = 0;
};

enum class TcpPurpose : std::uint8_t { data, control };

struct MeetingOptions {
  TcpPurpose purpose = TcpPurpose::data;
  std::string interface_address;  // see TcpOptions
  SocketBuffers buffers;
  int sockets = 1;  // a lane; connect() throws Error{mismatch} where other ranks want another number
};

class TcpMeeting {
 public:
  TcpMeeting(const WorldInfo& info, MeetingOptions options);

  std::string address() const { return address_.text(); }

  // Non-blocking connected sockets, in the order of `links`; both ends must ask for a link. The higher rank dials.
  // Returns when all stand, and stops listening: call it once. Throws Error{unreachable} naming the ranks that were not
  // reached by `deadline` and the addresses that were tried.
  std::vector<Fd> connect(const std::vector<std::string>& addresses, const std::vector<TcpLink>& links,
                          std::chrono::steady_clock::time_point deadline);

 private:
  const WorldInfo info_;
  const MeetingOptions options_;
  Fd listener_;
  TcpAddress address_;
};

}  // namespace ranvier::transport
