// Where the ranks meet that torchrun, or anyone who sets MASTER_ADDR, has started.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "ranvier/store.h"

namespace ranvier::trainer {

struct TcpStorePlace {
  std::string address;
  std::uint16_t port = 0;
  bool serve = false;  // nobody else does, and this rank shall
  std::string prefix;  // under which keys stand: restarts of one job share a server
};

// torch's TCPStore. Throws Error{unreachable} if it does not answer within `timeout`.
std::unique_ptr<Store> tcp_store(const TcpStorePlace& place, std::chrono::milliseconds timeout);

}  // namespace ranvier::trainer
