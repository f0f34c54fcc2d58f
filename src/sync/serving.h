// By how many threads a rank serves what others ask of it, and which of them are still needed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <mutex>

namespace ranvier::sync {

// A push holds its thread up for as long as the line to its worker takes to bring it and to carry the answer away.
// Pushes of several workers then take that time together, each on its own line, and who only asks for samples waits for
// none of them. Each thread has room for one push and its answer.
inline constexpr std::size_t serving_threads = 4;

class Serving {
 public:
  Serving(std::size_t clients, std::size_t threads) : clients_(clients), threads_(std::min(clients, threads)) {}

  // Still needed.
  std::size_t threads() const {
    const std::lock_guard lock(mutex_);
    return threads_;
  }
  // A client has made its last request. Whether the thread that has heard it is needed no more: a client asks for one
  // thing at a time, so there are never more threads than clients, and none is left to wait behind the last of them.
  bool has_left() {
    const std::lock_guard lock(mutex_);
    --clients_;
    if (threads_ <= clients_) return false;
    --threads_;
    return true;
  }

 private:
  mutable std::mutex mutex_;
  std::size_t clients_;
  std::size_t threads_;
};

}  // namespace ranvier::sync
