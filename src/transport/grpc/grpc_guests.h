// Who has connected to the grpc transport and has not shown yet, by a call of a rank's, to belong to the job.
//
// gRPC takes whoever comes to a port of its own, as many as come and for as long as they stay. So the port is the door
// at which the job meets anyway (tcp_door.h): what connects there is handed to gRPC, but a second descriptor stays
// here, by which a guest is held to what strangers may do at any door of ranvier's, see tcp_meeting.cc. Once all ranks
// are connected there is no door any more. Included by grpc.cc alone.
#pragma once

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <grpcpp/server_builder.h>

#include "base/socket.h"
#include "transport/tcp_door.h"

namespace ranvier::transport {

class GrpcGuests {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;
  struct Limits {
    bool own_host_only = false;
    std::size_t bytes = 4 << 10;  // that a guest may send
    std::size_t expected = 0;     // guests
  };

  GrpcGuests(std::shared_ptr<TcpDoor> door, std::unique_ptr<Acceptor> acceptor, const Limits& limits)
      : door_(std::move(door)), acceptor_(std::move(acceptor)), limits_(limits) {}
  // Nobody comes in any more, and who has shown nothing has to go.
  ~GrpcGuests() {
    for (const Guest& guest : guests_) end(guest);
  }
  GrpcGuests(const GrpcGuests&) = delete;
  GrpcGuests& operator=(const GrpcGuests&) = delete;

  // Lets in who waits at the door, and shows out who has stayed too long, has said too much or has gone.
  void look(Time now) {
    guests_.remove_if([&](const Guest& guest) {
      const bool is_over = now >= guest.until || !behaves(guest);
      if (is_over) end(guest);
      return is_over;
    });
    for (std::size_t count = 0; count < most_strangers; ++count) {
      Fd socket = accept_next(door_->listener);
      if (!socket) return;
      let_in(std::move(socket), now);
    }
  }

  // Whoever is at `peer`, as gRPC names it, is a rank.
  void is_rank(const std::string& peer) {
    const std::string place = place_of(peer);
    guests_.remove_if([&](const Guest& guest) { return guest.place == place; });
  }

 private:
  static constexpr std::size_t most_strangers = 64;  // beyond those that are expected
  static constexpr auto patience = std::chrono::seconds(5);

  struct Guest {
    Fd socket;
    std::string place;
    Time until;
  };

  void let_in(Fd socket, Time now) {
    const SocketAddress from = remote_address(socket);
    if (limits_.own_host_only && !is_own(from)) return;
    Acceptor::NewConnectionParameters connection;
    connection.listener_fd = door_->listener.get();
    connection.fd = fcntl(socket.get(), F_DUPFD_CLOEXEC, 0);  // gRPC's own
    if (connection.fd < 0) return;
    if (guests_.size() >= limits_.expected + most_strangers) {
      end(guests_.front());
      guests_.pop_front();
    }
    tune_connection(socket);
    guests_.push_back({std::move(socket), from.text(), now + patience});
    acceptor_->HandleNewConnection(&connection);
  }

  bool behaves(const Guest& guest) const {
    tcp_info about{};
    socklen_t size = sizeof about;
    if (getsockopt(guest.socket.get(), IPPROTO_TCP, TCP_INFO, &about, &size) != 0) return false;
    constexpr int established = 1;  // TCP_ESTABLISHED of <netinet/tcp.h>, which does not go with <linux/tcp.h>
    return about.tcpi_state == established && about.tcpi_bytes_received <= limits_.bytes;
  }

  static void end(const Guest& guest) { shutdown(guest.socket.get(), SHUT_RDWR); }

  // "ipv6:%5B::1%5D:4242" as SocketAddress::text() writes it.
  static std::string place_of(std::string_view peer) {
    peer.remove_prefix(std::min(peer.find(':') + 1, peer.size()));
    std::string place;
    for (std::size_t i = 0; i < peer.size(); ++i) {
      const std::string_view code = peer.substr(i, 3);
      const char meant = code == "%5B" ? '[' : code == "%5D" ? ']' : code == "%25" ? '%' : '\0';
      place += meant == '\0' ? peer[i] : meant;
      if (meant != '\0') i += 2;
    }
    return place;
  }

  const std::shared_ptr<TcpDoor> door_;
  const std::unique_ptr<Acceptor> acceptor_;
  const Limits limits_;
  std::list<Guest> guests_;  // oldest first
};

}  // namespace ranvier::transport
