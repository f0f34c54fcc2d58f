#include "transport/shm_address.h"

#include <fmt/format.h>
#include <unistd.h>

#include <span>
#include <vector>

#include "base/host.h"
#include "base/secret.h"
#include "base/split.h"
#include "ranvier/text.h"
#include "ranvier/transport.h"
#include "transport/inbox.h"

namespace ranvier::transport {
namespace {

// Of a process, and of a file in it.
std::optional<int> parse_id(std::string_view text) {
  const auto number = parse_number<int>(text);
  return number && *number >= 0 ? number : std::nullopt;
}

}  // namespace

std::string ShmAddress::text() const {
  return fmt::format("shm{}:{}:{}:{}:{}:{}", inbox_version, host, process, file, token[0], token[1]);
}

std::optional<ShmAddress> ShmAddress::parse(std::string_view text) {
  const auto parts = split(text, ':');
  if (parts.size() != 6 || parts[0] != fmt::format("shm{}", inbox_version) || parts[1].empty()) return std::nullopt;
  const auto process = parse_id(parts[2]);
  const auto file = parse_id(parts[3]);
  const auto first = parse_number<std::uint64_t>(parts[4]);
  const auto second = parse_number<std::uint64_t>(parts[5]);
  if (!process || !file || !first || !second) return std::nullopt;
  return ShmAddress{.host = std::string(parts[1]), .process = *process, .file = *file, .token = {*first, *second}};
}

std::string shm_host(std::string_view node) {
  const std::string boot = boot_id();
  std::array<char, 64> space{};  // "pid:[4026531836]"
  const auto length = readlink("/proc/self/ns/pid", space.data(), space.size());
  if (boot.empty() || length <= 0) {
    const auto token = new_segment_token();
    return fmt::format("unknown.{:x}{:x}", token[0], token[1]);
  }
  std::string name = fmt::format("{}.{}.{}{}{}", boot, std::string_view(space.data(), static_cast<std::size_t>(length)),
                                 geteuid(), node.empty() ? "" : ".", node);
  std::erase(name, ':');
  return name;
}

std::array<std::uint64_t, 2> new_segment_token() {
  std::array<std::uint64_t, 2> token;
  fill_with_random(std::as_writable_bytes(std::span(token)));
  return token;
}

}  // namespace ranvier::transport

namespace ranvier {

std::vector<std::string> shm_hosts(const std::vector<std::string>& shm_addresses) {
  std::vector<std::string> hosts;
  for (const auto& text : shm_addresses) {
    const auto address = transport::ShmAddress::parse(text);
    hosts.push_back(address ? address->host : std::string());
  }
  return hosts;
}

}  // namespace ranvier
