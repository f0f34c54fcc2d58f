#include "transport/udp_address.h"

#include <fmt/format.h>

#include <charconv>

namespace ranvier::transport {
namespace {

constexpr std::string_view udp_prefix = "udp/4 ";

// Takes "name=value " from the front of `text`.
template <class Integer>
bool take(std::string_view& text, std::string_view name, int base, Integer& value) {
  if (!text.starts_with(name)) return false;
  text.remove_prefix(name.size());
  const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  const auto digits = static_cast<std::size_t>(rest - text.data());
  if (problem != std::errc{} || digits == text.size() || *rest != ' ') return false;
  text.remove_prefix(digits + 1);
  return true;
}

}  // namespace

std::string UdpAddress::text() const {
  return fmt::format("{}port={} key={:x} {}", udp_prefix, port, key, meeting.text());
}

std::optional<UdpAddress> UdpAddress::parse(std::string_view text) {
  UdpAddress address;
  if (!text.starts_with(udp_prefix)) return std::nullopt;
  text.remove_prefix(udp_prefix.size());
  if (!take(text, "port=", 10, address.port) || !take(text, "key=", 16, address.key)) return std::nullopt;
  auto meeting = TcpAddress::parse(text);
  if (!meeting) return std::nullopt;
  address.meeting = std::move(*meeting);
  return address;
}

std::vector<std::string> UdpAddress::candidates(const std::string& own_host) const {
  std::vector<std::string> result = meeting.ips;
  if (!meeting.host.empty() && meeting.host == own_host) result.insert(result.begin(), "127.0.0.1");
  return result;
}

}  // namespace ranvier::transport
