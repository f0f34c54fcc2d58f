// Worlds over udp on real sockets of this host, their ranks threads of this process, and the wire between them, which
// tests may make worse.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "transport/tcp_world.h"

namespace ranvier::support {

// What becomes of the datagrams that this process sends from now on (sendmmsg of the C library is replaced).
enum class UdpWire {
  honest,
  down,     // they leave and are lost
  hostile,  // one of eight is lost, and behind each other one come copies: changed, cut short, and as it was
};
inline std::atomic<UdpWire> udp_wire = UdpWire::honest;

// Copies of datagrams that were sent while it was listened for them, lost ones too, at most some hundred.
void listen_to_udp_wire();
std::vector<std::vector<std::byte>> heard_on_udp_wire();

std::vector<std::unique_ptr<Endpoint>> udp_endpoints(Rank world, const UdpOptions& options = {});

void send_all(Transport&, Rank to, Lane, ConstBytes);
std::vector<std::byte> receive_all(Transport&, Rank from, Lane, std::size_t bytes);
std::vector<std::byte> random_bytes(std::size_t count, unsigned seed);
// Every rank sends so many bytes to every other one on two lanes, and gets theirs.
void expect_everything_delivered(const std::vector<std::unique_ptr<Transport>>& world, std::size_t bytes);

}  // namespace ranvier::support
