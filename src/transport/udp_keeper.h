// The thread that moves a udp transport's packets while nobody else does, see udp_transport.h.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "base/socket.h"
#include "ranvier/error.h"
#include "transport/udp_socket.h"

namespace ranvier::transport {

class UdpKeeper {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  // `advance` moves packets, and gives when the next ones are due; the keeper holds `mutex` meanwhile, as everybody
  // does who moves packets of `socket`. All outlive the keeper's thread.
  UdpKeeper(const UdpSocket& socket, std::mutex& mutex, std::function<Time(Time now)> advance);
  ~UdpKeeper() { stop(); }
  UdpKeeper(const UdpKeeper&) = delete;
  UdpKeeper& operator=(const UdpKeeper&) = delete;

  void start();
  void stop();

  // Somebody else moves packets. Any thread.
  void driven(Time now) { driven_at_.store(now.time_since_epoch().count(), std::memory_order_relaxed); }
  // … and is the one who sleeps until some arrive: said with `mutex` held, and taken back by any thread.
  void others_sleep(bool they_do) { others_sleep_ = they_do; }

  // With `mutex` held: packets are due then, which the keeper may not know of.
  void due(Time next);
  // With `mutex` held: what ended the keeper.
  const std::optional<Error>& problem() const { return problem_; }

 private:
  void run();

  const UdpSocket& socket_;
  std::mutex& mutex_;  // of the next three
  const std::function<Time(Time now)> advance_;
  Time until_ = Time::min();  // it sleeps so long if nothing arrives; min: it is awake
  std::optional<Error> problem_;

  std::atomic<std::int64_t> driven_at_ = 0;  // Clock
  std::atomic<bool> others_sleep_ = false;
  std::atomic<bool> stop_ = false;
  Fd wake_ = event_descriptor();
  std::thread thread_;
};

}  // namespace ranvier::transport
