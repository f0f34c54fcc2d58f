// What a rank publishes so that others of its host can map its inbox.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ranvier::transport {

struct ShmAddress {
  std::string host;  // where /proc/PID means the same process, and whose user may open its files
  int process = 0;
  int file = 0;                          // of the inbox, in that process
  std::array<std::uint64_t, 2> token{};  // as in the inbox's header

  std::string text() const;
  static std::optional<ShmAddress> parse(std::string_view);
};

// Of this process: boot, process namespace, user and node. A random name, equal to no other, where /proc tells nothing.
std::string shm_host(std::string_view node);

std::array<std::uint64_t, 2> new_segment_token();

}  // namespace ranvier::transport
