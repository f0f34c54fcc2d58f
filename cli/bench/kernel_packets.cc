#include "bench/kernel_packets.h"

#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>

#include "base/host.h"
#include "base/socket.h"
#include "ranvier/text.h"

namespace ranvier::bench {
namespace {

using Line = std::map<std::string, std::uint64_t>;

// Two lines that begin with `protocol`: the names of the counters, and their values.
Line counters(std::string_view snmp, const std::string& protocol) {
  std::istringstream lines{std::string(snmp)};
  std::string names, values, line;
  while (values.empty() && std::getline(lines, line))
    if (line.starts_with(protocol)) (names.empty() ? names : values) = line.substr(protocol.size());
  Line found;
  std::istringstream name_words(names), value_words(values);
  for (std::string name, value; name_words >> name && value_words >> value;)
    found[name] = parse_number<std::uint64_t>(value).value_or(0);  // one of them may be -1: no limit
  return found;
}

}  // namespace

KernelPackets parse_kernel_packets(std::string_view snmp) {
  Line tcp = counters(snmp, "Tcp:"), udp = counters(snmp, "Udp:");
  // OutSegs leaves out what is sent again, and InErrs has the wrong checksums among its errors.
  return {.tcp = {.sent = tcp["OutSegs"] + tcp["RetransSegs"], .lost = tcp["RetransSegs"], .refused = tcp["InErrs"]},
          .damaged_udp = udp["InCsumErrors"]};
}

KernelPackets kernel_packets() {
  std::ifstream file("/proc/self/net/snmp");
  std::ostringstream text;
  text << file.rdbuf();
  return parse_kernel_packets(text.str());
}

std::uint64_t counting_network() { return std::hash<std::string>()(host_identity()) >> 12 | 1; }

}  // namespace ranvier::bench
