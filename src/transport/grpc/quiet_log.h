// gRPC writes a line for every handshake that fails, so that strangers could fill a disk. Here it writes the first
// ones, and later one in a minute. GRPC_VERBOSITY leaves it as it is.
#pragma once

#include <grpcpp/version_info.h>

#include <cstdlib>

// From 1.65 on it writes by Abseil's log, which is the program's.
#if GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR < 65
#include <grpc/support/log.h>

#include <chrono>
#include <cstdio>
#include <mutex>

namespace ranvier::transport {

inline void write_some(gpr_log_func_args* line) {
  using std::chrono::steady_clock;
  constexpr int at_first = 10;
  constexpr std::chrono::minutes between(1);
  static std::mutex mutex;
  static int written = 0;
  static unsigned long left_out = 0;
  static steady_clock::time_point last;
  const std::lock_guard lock(mutex);
  const auto now = steady_clock::now();
  if (written >= at_first && now < last + between) {
    ++left_out;
    return;
  }
  std::fprintf(stderr, "gRPC: %s\n", line->message);
  if (left_out > 0) std::fprintf(stderr, "gRPC: %lu such lines before it were left out\n", left_out);
  left_out = 0;
  last = now;
  if (written < at_first) ++written;
}

inline void keep_log_short() {
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function(write_some);
}

}  // namespace ranvier::transport
#else
namespace ranvier::transport {
inline void keep_log_short() {}
}  // namespace ranvier::transport
#endif
