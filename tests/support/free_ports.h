// Ports for tests that have to know them before the ranks do.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <vector>

#include "base/socket.h"
#include "ranvier/error.h"
#include "ranvier/transport.h"

namespace ranvier::support {

// Some that follow each other, so many as there are ranks, below those that Linux gives to whoever asks for any.
inline PortRange free_ports(Rank world) {
  for (int attempt = 0;; ++attempt) {
    const auto port = static_cast<std::uint16_t>(20'000 + (getpid() * 7 + attempt * 11) % 12'000);
    const PortRange range{port, static_cast<std::uint16_t>(port + world - 1)};
    try {
      std::vector<Fd> others;
      for (std::uint16_t next = port; next <= range.last; ++next) others.push_back(listen_on("", {next, next}, {}));
      return range;
    } catch (const Error&) {  // one of them is taken
    }
  }
}

}  // namespace ranvier::support
