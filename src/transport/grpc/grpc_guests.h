// Who has connected to the grpc transport and has not shown yet, by a call of a rank's, to belong to the job.
//
// The port is the door at which the job meets anyway (tcp_door.h): what connects there is handed to gRPC, and held to
// what strangers may do at any door of ranvier's, see tcp_meeting.cc. Once all ranks are connected there is no door any
// more. Included by grpc.cc alone.
#pragma once

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "base/socket.h"
#include "transport/grpc/handed_over.h"
#include "transport/tcp_door.h"

namespace ranvier::transport {

class GrpcGuests {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Acceptor = HandedOver::Acceptor;
  struct Limits {
    bool own_host_only = false;
    std::size_t bytes = 4 << 10;  // that a guest may send
    std::size_t expected = 0;     // guests
  };

  GrpcGuests(std::shared_ptr<TcpDoor> door, std::unique_ptr<Acceptor> acceptor, const Limits& limits)
      : door_(std::move(door)), acceptor_(std::move(acceptor)), limits_(limits) {}
  // Nobody comes in any more, and who has shown nothing has to go.
  ~GrpcGuests() {
    for (const Guest& guest : guests_) guest.connection.end();
  }
  GrpcGuests(const GrpcGuests&) = delete;
  GrpcGuests& operator=(const GrpcGuests&) = delete;

  // Lets in who waits at the door, and shows out who has stayed too long, has said too much or has gone.
  void look(Time now) {
    guests_.remove_if([&](const Guest& guest) {
      const bool is_over = now >= guest.until || !behaves(guest);
      if (is_over) guest.connection.end();
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
    guests_.remove_if([&](const Guest& guest) { return guest.connection.is(peer); });
  }

 private:
  static constexpr auto patience = std::chrono::seconds(5);

  struct Guest {
    HandedOver connection;
    Time until;
  };

  void let_in(Fd socket, Time now) {
    const SocketAddress from = remote_address(socket);
    if (limits_.own_host_only && !is_own(from)) return;
    if (guests_.size() >= limits_.expected + most_strangers) {
      guests_.front().connection.end();
      guests_.pop_front();
    }
    guests_.push_back({HandedOver(std::move(socket)), now + patience});
    if (!guests_.back().connection.give_to(*acceptor_, door_->listener)) guests_.pop_back();
  }

  bool behaves(const Guest& guest) const {
    tcp_info about{};
    socklen_t size = sizeof about;
    if (getsockopt(guest.connection.socket().get(), IPPROTO_TCP, TCP_INFO, &about, &size) != 0) return false;
    constexpr int established = 1;  // TCP_ESTABLISHED of <netinet/tcp.h>, which does not go with <linux/tcp.h>
    return about.tcpi_state == established && about.tcpi_bytes_received <= limits_.bytes;
  }

  const std::shared_ptr<TcpDoor> door_;
  const std::unique_ptr<Acceptor> acceptor_;
  const Limits limits_;
  std::list<Guest> guests_;  // oldest first
};

}  // namespace ranvier::transport
