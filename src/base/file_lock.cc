#include "base/file_lock.h"

#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <thread>

namespace ranvier {

std::error_code lock_until(const Fd& file, int operation, std::chrono::steady_clock::time_point deadline) {
  using std::chrono::microseconds;
  for (auto pause = microseconds(100);; pause = std::min(pause * 2, microseconds(10'000))) {
    if (flock(file.get(), operation | LOCK_NB) == 0) return {};
    if (errno != EWOULDBLOCK && errno != EINTR) return {errno, std::generic_category()};
    if (std::chrono::steady_clock::now() >= deadline) return make_error_code(std::errc::timed_out);
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace ranvier
