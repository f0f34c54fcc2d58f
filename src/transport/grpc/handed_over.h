// A connection that came in at a door of ranvier's and was handed to gRPC. gRPC takes whoever comes to a port of its
// own, as many as come and for as long as they stay; so it has none here, and a second descriptor of each connection,
// by which that can be ended, stays with whoever let it in. Included by guest_door.h.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <grpcpp/server_builder.h>

#include "base/socket.h"
#include "ranvier/text.h"

namespace ranvier::transport {

class HandedOver {
 public:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  explicit HandedOver(Fd socket) : socket_(std::move(socket)), place_(remote_address(socket_).text()) {
    tune_connection(socket_);
  }

  // False where no descriptor is left.
  bool give_to(Acceptor& acceptor, const Fd& listener) const {
    Acceptor::NewConnectionParameters connection;
    connection.listener_fd = listener.get();
    connection.fd = fcntl(socket_.get(), F_DUPFD_CLOEXEC, 0);  // gRPC's own
    if (connection.fd < 0) return false;
    acceptor.HandleNewConnection(&connection);
    return true;
  }
  void end() const { shutdown(socket_.get(), SHUT_RDWR); }

  const Fd& socket() const { return socket_; }
  // Whether it is the one that gRPC calls `peer`.
  bool is(std::string_view peer) const { return place_ == place_of(peer); }

 private:
  // "ipv6:%5Bfe80::1%252%5D:4242" as SocketAddress::text() writes it, by which it is "[fe80::1%eth0]:4242".
  static std::string place_of(std::string_view peer) {
    peer.remove_prefix(std::min(peer.find(':') + 1, peer.size()));
    std::string place;
    for (std::size_t i = 0; i < peer.size(); ++i) {
      const std::string_view code = peer.substr(i, 3);
      const char meant = code == "%5B" ? '[' : code == "%5D" ? ']' : code == "%25" ? '%' : '\0';
      place += meant == '\0' ? peer[i] : meant;
      if (meant != '\0') i += 2;
    }
    const std::size_t colon = std::min(place.rfind(':'), place.size());
    const bool in_brackets = colon >= 2 && place.front() == '[' && place[colon - 1] == ']';
    const auto port = parse_number<std::uint16_t>(std::string_view(place).substr(std::min(colon + 1, place.size())));
    const auto address =
        parse_address(in_brackets ? place.substr(1, colon - 2) : place.substr(0, colon), port.value_or(0));
    return address ? address->text() : place;
  }

  Fd socket_;
  std::string place_;  // of its other end
};

}  // namespace ranvier::transport
