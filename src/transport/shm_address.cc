#include "transport/shm_address.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <random>
#include <vector>

#include "ranvier/transport.h"
#include "transport/inbox.h"

namespace ranvier::transport {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

template <class Number>
bool parse_number(std::string_view text, Number& number, int base = 10) {
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return problem == std::errc{} && end == text.data() + text.size() && number >= 0;
}

}  // namespace

std::string ShmAddress::text() const {
  return fmt::format("shm{}:{}:{}:{}:{:x}:{:x}", inbox_version, host, process, file, token[0], token[1]);
}

std::optional<ShmAddress> ShmAddress::parse(std::string_view text) {
  const auto parts = split(text, ':');
  if (parts.size() != 6 || parts[0] != fmt::format("shm{}", inbox_version) || parts[1].empty()) return std::nullopt;
  ShmAddress address{.host = std::string(parts[1])};
  const bool whole = parse_number(parts[2], address.process) && parse_number(parts[3], address.file) &&
                     parse_number(parts[4], address.token[0], 16) && parse_number(parts[5], address.token[1], 16);
  return whole ? std::optional(address) : std::nullopt;
}

std::string shm_host(std::string_view node) {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
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
  std::random_device device;  // the kernel's generator
  const auto word = [&] { return std::uint64_t{device()} << 32 | device(); };
  return {word(), word()};
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
