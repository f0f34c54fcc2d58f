// Lines that are slow because their sender is.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <span>
#include <thread>
#include <vector>

#include "transport/tcp_world.h"

namespace ranvier::support {

// A message that comes in packets, `pause` between them; how much there was each time that its receiver had slept for
// what he expected, while more than `beyond` was to come. He sleeps for as long as it takes: what he awaits in vain
// ends the test.
inline std::vector<std::size_t> found_after_sleeps(Transport& from, Transport& to, std::size_t bytes,
                                                   std::chrono::microseconds pause, std::size_t beyond = 0) {
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
    if (slept && bytes - received > beyond) found.push_back(view.size());
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

// Half of the sleeps found more, of those in the midst of a message: at its end there is less to sleep for. 0 if there
// were few: where an end loses its core now and then, as on a busy machine, the line does not seem slow for long.
inline std::size_t median_found_after_sleeps(Transport& from, Transport& to) {
  constexpr std::size_t enough = 20, beyond = 128 << 10;
  std::vector<std::size_t> found;
  const auto deadline = std::chrono::steady_clock::now() + tcp_patience / 2;
  while (found.size() < enough && std::chrono::steady_clock::now() < deadline)
    std::ranges::copy(found_after_sleeps(from, to, 2'000'001, std::chrono::microseconds(60), beyond),
                      std::back_inserter(found));
  if (found.size() < enough) return 0;
  std::ranges::nth_element(found, found.begin() + static_cast<std::ptrdiff_t>(found.size() / 2));
  return found[found.size() / 2];
}

// Sends until the receiver would sleep for what he expects.
inline bool becomes_slow(Transport& from, Transport& to, std::span<const Expected> expected) {
  const auto deadline = std::chrono::steady_clock::now() + tcp_patience / 2;
  while (!to.expect(expected) && std::chrono::steady_clock::now() < deadline)
    found_after_sleeps(from, to, 500'000, std::chrono::microseconds(60));
  return to.expect(expected);
}

}  // namespace ranvier::support
