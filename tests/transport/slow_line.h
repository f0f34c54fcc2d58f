// Lines that are slow because their sender is.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include "transport/tcp_world.h"

namespace ranvier::support {

// A message that comes in packets, `pause` between them; how much there was each time that its receiver had slept for
// what he expected. He sleeps for as long as it takes: what he awaits in vain ends the test.
inline std::vector<std::size_t> found_after_sleeps(Transport& from, Transport& to, std::size_t bytes,
                                                   std::chrono::microseconds pause) {
  std::thread sender([&] {
    const std::vector<std::byte> packet(1448);
    for (std::size_t sent = 0; sent < bytes;) {
      const auto until = std::chrono::steady_clock::now() + pause;
      sent += from.try_send(to.rank(), 1, {}, ConstBytes(packet).first(std::min(packet.size(), bytes - sent)));
      while (!from.sent(to.rank(), 1) || std::chrono::steady_clock::now() < until) std::this_thread::yield();
    }
  });
  std::vector<std::size_t> found;
  bool slept = false;
  for (std::size_t received = 0; received < bytes;) {
    const ConstBytes view = to.try_recv(from.rank(), 1, {});
    if (slept) found.push_back(view.size());
    received += view.size();
    to.release(from.rank(), 1, view.size());
    slept = view.empty() && to.expect(std::array{Expected{from.rank(), 1, bytes - received}});
    if (slept)
      to.wait(tcp_patience);
    else if (view.empty())
      std::this_thread::yield();
  }
  sender.join();
  return found;
}

}  // namespace ranvier::support
