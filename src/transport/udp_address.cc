#include "transport/udp_address.h"

namespace ranvier::transport {
namespace {

constexpr std::string_view prefix = "udp/1 ";

}  // namespace

// As an address of tcp, whose text is checked field by field already, under another name.
std::string UdpAddress::text() const {
  const std::string as_tcp = TcpAddress{.host = host, .token = token, .port = port, .sockets = 1, .ips = ips}.text();
  return std::string(prefix) + as_tcp;
}

std::optional<UdpAddress> UdpAddress::parse(std::string_view text) {
  if (!text.starts_with(prefix)) return std::nullopt;
  auto parsed = TcpAddress::parse(text.substr(prefix.size()));
  if (!parsed) return std::nullopt;
  return UdpAddress{std::move(parsed->host), parsed->token, parsed->port, std::move(parsed->ips)};
}

std::vector<std::string> UdpAddress::candidates(const std::string& own_host) const {
  if (!host.empty() && host == own_host) return {"127.0.0.1"};
  return ips;
}

}  // namespace ranvier::transport
