#include "transport/tcp_address.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/secret.h"
#include "base/split.h"
#include "ranvier/text.h"
#include "ranvier/transport.h"
#include "transport/published_address.h"

namespace ranvier::transport {
namespace {

constexpr std::string_view tcp_prefix = "tcp/3";
constexpr std::size_t most_text = 4096;

}  // namespace

Token random_token() {
  Token token;
  fill_with_random(token);
  return token;
}

std::string TcpAddress::text() const {
  return fmt::format("{} host={} token={} port={} sockets={} cpus={} at={}", tcp_prefix, host, hex(token), port,
                     sockets, cpus.text(), fmt::join(ips, ","));
}

std::optional<TcpAddress> TcpAddress::parse(std::string_view text) {
  const auto words = split(text.substr(0, most_text), ' ');
  if (words.size() != 7 || words[0] != tcp_prefix) return std::nullopt;
  const auto value = [&](std::size_t index, std::string_view key) {
    return words[index].starts_with(key) ? std::optional(words[index].substr(key.size())) : std::nullopt;
  };
  const auto host = value(1, "host=");
  const auto digits = value(2, "token=");
  const auto port_text = value(3, "port=");
  const auto sockets_text = value(4, "sockets=");
  const auto cpus_text = value(5, "cpus=");
  const auto at = value(6, "at=");
  if (!host || !digits || !port_text || !sockets_text || !cpus_text || !at) return std::nullopt;
  TcpAddress address;
  address.host = *host;
  const auto port = parse_number<std::uint16_t>(*port_text);
  const auto sockets = parse_number<int>(*sockets_text);
  const auto cpus = CpuSet::parse(*cpus_text);
  const auto ips = split(*at, ',');
  if (!parse_hex(*digits, address.token) || !port || !sockets || *sockets < 1 || *sockets > most_sockets || !cpus ||
      ips.size() > most_ips)
    return std::nullopt;
  address.port = *port;
  address.sockets = *sockets;
  address.cpus = *cpus;
  if (!at->empty()) address.ips.assign(ips.begin(), ips.end());
  return address;
}

std::vector<SocketAddress> TcpAddress::candidates(const std::string& own_host) const {
  std::vector<SocketAddress> result;
  const auto add = [&](const std::string& ip) {
    if (const auto address = parse_address(ip, port)) result.push_back(*address);
  };
  if (!host.empty() && host == own_host) add("127.0.0.1");
  for (const std::string& ip : ips) add(ip);
  return result;
}

}  // namespace ranvier::transport
