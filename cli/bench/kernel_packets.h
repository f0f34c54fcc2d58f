// What the kernel counts of the packets of this host (of this network namespace), whoever sent them: for transports
// that leave their packets to it. Between samples of a benchmark they are nearly all the benchmark's.
#pragma once

#include <cstdint>
#include <string_view>

#include "ranvier/transport.h"

namespace ranvier::bench {

struct KernelPackets {
  PacketCounts tcp;               // segments; `refused`: wrong checksums and headers
  std::uint64_t damaged_udp = 0;  // datagrams over IPv4 whose checksum was wrong
};
// Of the text of /proc/net/snmp (proc_net(5), RFC 4022 and 4113); zeros for what it does not have.
KernelPackets parse_kernel_packets(std::string_view snmp);
// Zeros where there is no such file.
KernelPackets kernel_packets();

// The same for all processes whose packets the kernel counts together, and exact as a double; never 0.
std::uint64_t counting_network();

}  // namespace ranvier::bench
